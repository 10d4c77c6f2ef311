package decision

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/apis/podspec"
)

// images are the container images that nodes have: name -> node -> bytes.
type images map[string]map[*node]int64

// have sets the images of a node.
func (im images) have(n *node, list []corev1.ContainerImage) {
	same := slices.EqualFunc(n.images, list, func(a, b corev1.ContainerImage) bool {
		return a.SizeBytes == b.SizeBytes && slices.Equal(a.Names, b.Names)
	})
	if same {
		return
	}
	for _, image := range n.images {
		for _, name := range image.Names {
			if delete(im[name], n); len(im[name]) == 0 {
				delete(im, name)
			}
		}
	}
	n.images = list
	for _, image := range list {
		for _, name := range image.Names {
			if im[name] == nil {
				im[name] = map[*node]int64{}
			}
			im[name][n] = image.SizeBytes
		}
	}
}

// An image smaller than smallImage has the score 0, one of largeImage or more the
// maximum.
const (
	smallImage = 23 * 1024 * 1024   // bytes
	largeImage = 1000 * 1024 * 1024 // bytes for each container
)

// imageLocality prefers nodes that have large images of the pod. The score grows with
// the number of nodes that have an image, so that a few nodes do not get all pods.
func imageLocality(s *Snapshot, r *request, nodes []*node, scores []int64) bool {
	spec := &r.pod.Spec
	found := false
	total := float64(s.nodes.present.total)
	add := func(image string) {
		have := s.images[imageName(image)]
		if len(have) == 0 {
			return
		}
		found = true
		spread := float64(len(have)) / total
		for i, n := range nodes {
			if size, ok := have[n]; ok {
				scores[i] += int64(float64(size) * spread)
			}
		}
	}
	for _, c := range podspec.NonEphemeral(spec) {
		add(c.Image)
	}
	for i := range spec.Volumes {
		if image := spec.Volumes[i].Image; image != nil {
			add(image.Reference)
		}
	}
	if !found {
		return false
	}
	largest := int64(largeImage * (len(spec.InitContainers) + len(spec.Containers)))
	for i := range scores {
		scores[i] = maxScore * (min(max(scores[i], smallImage), largest) - smallImage) / (largest - smallImage)
	}
	return true
}

// imageName is the name of an image as nodes report it.
func imageName(name string) string {
	if strings.LastIndexByte(name, ':') <= strings.LastIndexByte(name, '/') {
		name += ":latest"
	}
	return name
}
