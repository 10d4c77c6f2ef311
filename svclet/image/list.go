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
	// listLifetime is how long a list of images is remembered, unless one is
	// pulled.
	listLifetime = 30 * time.Second
	// maxNames is how many names of an image a node's status has.
	maxNames = 5
)

// list is the last list of images.
type list struct {
	mu     sync.Mutex
	images []corev1.ContainerImage
	until  time.Time
	// version counts how often the list was forgotten, lest one that was asked
	// for before is remembered after.
	version uint64
}

func (l *list) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.images, l.until = nil, time.Time{}
	l.version++
}

// List gives the images on the node for its status, the largest first. It may
// be half a minute old, but has all that was pulled meanwhile. Callers must not
// write to it.
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

// forStatus are the largest images as a node's status shows them.
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
