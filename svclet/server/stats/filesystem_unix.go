//go:build unix

package stats

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"
)

// fileSystem returns the usage of the file system of a path.
func fileSystem(path string, now time.Time) (*statsapi.FsStats, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return nil, fmt.Errorf("read the usage of the file system of %q: %w", path, err)
	}
	block := uint64(s.Bsize) //nolint:gosec // signed on some systems
	return &statsapi.FsStats{
		Time:           metav1.NewTime(now),
		CapacityBytes:  ptr.To(s.Blocks * block),
		AvailableBytes: ptr.To(s.Bavail * block),
		UsedBytes:      ptr.To((s.Blocks - s.Bfree) * block),
		Inodes:         ptr.To(s.Files),
		InodesFree:     ptr.To(s.Ffree),
		InodesUsed:     ptr.To(s.Files - s.Ffree),
	}, nil
}
