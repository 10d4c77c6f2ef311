package runtime

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PullImage pulls an image and returns the runtime's reference to it. It has no
// timeout but the context's. The error is the runtime's own, as events show it.
func (c *Client) PullImage(
	ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig,
) (string, error) {
	var ref string
	err := c.plain(ctx, "pull_image", func(ctx context.Context) (err error) {
		ref, err = c.images.PullImage(ctx, image, auth, sandbox)
		return err
	})
	return ref, err
}

// ImageStatus returns the runtime's image with this name or ID, or nil if it does
// not exist.
func (c *Client) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	var answer *runtimeapi.ImageStatusResponse
	err := c.do(ctx, "image_status", "ask for image "+image.GetImage(), func(ctx context.Context) (err error) {
		answer, err = c.images.ImageStatus(ctx, image, false)
		return err
	})
	return answer.GetImage(), err
}

// ListImages lists the runtime's images that match filter; nil matches all of
// them.
func (c *Client) ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	var images []*runtimeapi.Image
	err := c.do(ctx, "list_images", "list images", func(ctx context.Context) (err error) {
		images, err = c.images.ListImages(ctx, filter)
		return err
	})
	return images, err
}

// RemoveImage removes an image. It is not an error if the image does not exist.
func (c *Client) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	return c.doUnlessNotFound(ctx, "remove_image", "remove image "+image.GetImage(), func(ctx context.Context) error {
		return c.images.RemoveImage(ctx, image)
	})
}

// ImageFsInfo returns the disk usage of images and of containers' writable layers.
func (c *Client) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	var answer *runtimeapi.ImageFsInfoResponse
	err := c.do(ctx, "image_fs_info", "ask for the file systems of images", func(ctx context.Context) (err error) {
		answer, err = c.images.ImageFsInfo(ctx)
		return err
	})
	return answer, err
}
