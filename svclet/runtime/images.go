package runtime

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PullImage pulls an image and gives its reference in the runtime. It takes as
// long as it takes: bound it by the context. Its error is the runtime's own,
// as it stands in events.
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

// ImageStatus is what the runtime knows of an image, by its name or its id;
// nil if it does not have it.
func (c *Client) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	var answer *runtimeapi.ImageStatusResponse
	err := c.do(ctx, "image_status", "ask for image "+image.GetImage(), func(ctx context.Context) (err error) {
		answer, err = c.images.ImageStatus(ctx, image, false)
		return err
	})
	return answer.GetImage(), err
}

// ListImages lists the runtime's images; all of them where filter is nil.
func (c *Client) ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	var images []*runtimeapi.Image
	err := c.do(ctx, "list_images", "list images", func(ctx context.Context) (err error) {
		images, err = c.images.ListImages(ctx, filter)
		return err
	})
	return images, err
}

// RemoveImage removes an image. One that is not there is removed.
func (c *Client) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	return c.unlessGone(ctx, "remove_image", "remove image "+image.GetImage(), func(ctx context.Context) error {
		return c.images.RemoveImage(ctx, image)
	})
}

// ImageFsInfo says how much room images and the containers' own layers take.
func (c *Client) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	var answer *runtimeapi.ImageFsInfoResponse
	err := c.do(ctx, "image_fs_info", "ask for the file systems of images", func(ctx context.Context) (err error) {
		answer, err = c.images.ImageFsInfo(ctx)
		return err
	})
	return answer, err
}
