package eviction

import (
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/eviction/threshold"
)

// layout is which of the node's disks are separate ones.
type layout int

const (
	// oneDisk has everything.
	oneDisk layout = iota
	// imageDisk is a node with another disk for images and the writable layers of
	// containers.
	imageDisk
	// splitDisk is a node with another disk for images alone.
	splitDisk
)

// layoutOf returns the layout of the node's disks. Two disks are distinguished by their
// capacity.
func layoutOf(s *statsapi.Summary) layout {
	node, runtime := s.Node.Fs, s.Node.Runtime
	separate := func(f *statsapi.FsStats) bool {
		return node != nil && f != nil && !ptr.Equal(node.CapacityBytes, f.CapacityBytes)
	}
	switch {
	case runtime == nil || !separate(runtime.ImageFs):
		return oneDisk
	case runtime.ContainerFs != nil && !separate(runtime.ContainerFs):
		return splitDisk
	}
	return imageDisk
}

// parts are what a disk of the node has.
type parts struct {
	// images are unused images that can be removed; layers are the writable layers of
	// containers; files are the logs and local volumes of pods.
	images, layers, files bool
}

// partsOf returns what is on the disk that a signal is of: kubelet's
// buildSignalToNodeReclaimFuncs and buildSignalToRankFunc.
func (l layout) partsOf(s threshold.Signal) parts {
	ofImages := s == threshold.ImageFs || s == threshold.ImageFsInodes
	ofContainers := s == threshold.ContainerFs || s == threshold.ContainerFsInodes
	switch {
	case l == oneDisk:
		return parts{images: true, layers: true, files: true}
	case l == splitDisk && ofImages:
		return parts{images: true}
	case l == splitDisk:
		return parts{layers: true, files: true}
	case ofImages || ofContainers:
		return parts{images: true, layers: true}
	}
	return parts{files: true}
}

// usage returns what a pod uses of a disk with these parts; amount selects bytes or inodes.
func (p parts) usage(used *statsapi.PodStats, amount func(*statsapi.FsStats) *uint64) (sum uint64, known bool) {
	if used.EphemeralStorage == nil || amount(used.EphemeralStorage) == nil {
		return 0, false
	}
	var layers uint64
	for i := range used.Containers {
		if f := used.Containers[i].Rootfs; f != nil {
			layers += ptr.Deref(amount(f), 0)
		}
	}
	if p.files {
		total := *amount(used.EphemeralStorage)
		sum += total - min(layers, total)
	}
	if p.layers {
		sum += layers
	}
	return sum, true
}

func bytesUsed(f *statsapi.FsStats) *uint64  { return f.UsedBytes }
func inodesUsed(f *statsapi.FsStats) *uint64 { return f.InodesUsed }
