package image

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// listLifetime is how long a list of images is cached, unless an image is pulled.
	listLifetime = 30 * time.Second
	// maxNames bounds the names of an image in the node's status.
	maxNames = 5
)

// list is the cached list of images.
type list struct {
	mu     sync.Mutex
	images []corev1.ContainerImage
	until  time.Time
	// version counts invalidations, so that a list requested before one is not cached
	// after it.
	version uint64
}

func (l *list) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.images, l.until = nil, time.Time{}
	l.version++
}

// Forget makes the next call of [Manager.List] ask the runtime.
func (m *Manager) Forget() { m.list.forget() }

// List returns the images on the node for its status, the largest first. It may be
// half a minute old, but includes all images pulled meanwhile. Callers must not
// modify it.
func (m *Manager) List(ctx context.Context) ([]corev1.ContainerImage, error) {
	m.list.mu.Lock()
	images, until, version := m.list.images, m.list.until, m.list.version
	m.list.mu.Unlock()
	if m.options.Clock.Now().Before(until) {
		return images, nil
	}

	found, err := m.options.Runtime.ListImages(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("error getting image list: %w", err)
	}
	images = forStatus(found, m.options.MaxListed)

	m.list.mu.Lock()
	defer m.list.mu.Unlock()
	if m.list.version == version {
		m.list.images, m.list.until = images, m.options.Clock.Now().Add(listLifetime)
	}
	return images, nil
}

// forStatus returns the largest images in the form of a node's status.
func forStatus(images []*runtimeapi.Image, limit int) []corev1.ContainerImage {
	images = slices.Clone(images)
	slices.SortFunc(images, func(a, b *runtimeapi.Image) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(b.Id, a.Id))
	})
	if limit >= 0 {
		images = images[:min(len(images), limit)]
	}
	shown := make([]corev1.ContainerImage, len(images))
	for i, image := range images {
		names := slices.Concat(image.RepoDigests, image.RepoTags)
		shown[i] = corev1.ContainerImage{Names: names[:min(len(names), maxNames)], SizeBytes: int64(image.Size)}
	}
	return shown
}
