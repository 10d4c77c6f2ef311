package runtimetest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// AddImage adds an image to the store. Its ID is derived from its name; size is in
// bytes.
func (r *Runtime) AddImage(name string, size uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addImage(name, size)
}

// FailPulls makes pulls of an image fail; with nil they succeed again.
func (r *Runtime) FailPulls(name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pullErrors[name] = err
}

// addImage adds an image. The caller holds mu.
func (r *Runtime) addImage(name string, size uint64) *runtimeapi.Image {
	id := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(name)))
	if r.images[id] == nil {
		image := &runtimeapi.Image{Id: id, Size: size, Spec: &runtimeapi.ImageSpec{Image: name}}
		if strings.Contains(name, "@") {
			image.RepoDigests = []string{name}
		} else {
			image.RepoTags = []string{name}
		}
		r.images[id] = image
	}
	return r.images[id]
}

// image returns the image of a name or an ID, nil if there is none. The caller holds
// mu.
func (r *Runtime) image(name string) *runtimeapi.Image {
	if image := r.images[name]; image != nil {
		return image
	}
	for _, image := range r.images {
		if slices.Contains(image.GetRepoTags(), name) || slices.Contains(image.GetRepoDigests(), name) {
			return image
		}
	}
	return nil
}

// PullImage adds an image to the store.
func (r *Runtime) PullImage(_ context.Context, request *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := request.GetImage().GetImage()
	if err := r.pullErrors[name]; err != nil {
		return nil, err
	}
	return &runtimeapi.PullImageResponse{ImageRef: r.addImage(name, 1<<20).GetId()}, nil
}

// ImageStatus returns an image, or nothing.
func (r *Runtime) ImageStatus(_ context.Context, request *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &runtimeapi.ImageStatusResponse{Image: r.image(request.GetImage().GetImage())}, nil
}

// ListImages lists all images, or the one that a filter names.
func (r *Runtime) ListImages(_ context.Context, request *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	answer := &runtimeapi.ListImagesResponse{}
	if name := request.GetFilter().GetImage().GetImage(); name != "" {
		if image := r.image(name); image != nil {
			answer.Images = append(answer.Images, image)
		}
		return answer, nil
	}
	for _, image := range r.images {
		answer.Images = append(answer.Images, image)
	}
	return answer, nil
}

// RemoveImage removes an image if it exists.
func (r *Runtime) RemoveImage(_ context.Context, request *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if image := r.image(request.GetImage().GetImage()); image != nil {
		delete(r.images, image.GetId())
	}
	return &runtimeapi.RemoveImageResponse{}, nil
}

// ImageFsInfo returns the sum of the sizes of images.
func (r *Runtime) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var used uint64
	for _, image := range r.images {
		used += image.GetSize()
	}
	usage := []*runtimeapi.FilesystemUsage{{
		Timestamp:  r.options.Clock.Now().UnixNano(),
		FsId:       &runtimeapi.FilesystemIdentifier{Mountpoint: "/"},
		UsedBytes:  &runtimeapi.UInt64Value{Value: used},
		InodesUsed: &runtimeapi.UInt64Value{Value: uint64(len(r.images))},
	}}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: usage, ContainerFilesystems: usage}, nil
}
