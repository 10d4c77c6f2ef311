package stats

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"
)

// writableLayer returns the usage of a container's writable layer.
func writableLayer(u *runtimeapi.FilesystemUsage) *statsapi.FsStats {
	if u == nil {
		return &statsapi.FsStats{}
	}
	f, err := fileSystem(u.GetFsId().GetMountpoint(), nanoseconds(u.Timestamp).Time)
	if err != nil {
		f = &statsapi.FsStats{Time: nanoseconds(u.Timestamp)} // not a file system of this machine
	}
	f.UsedBytes, f.InodesUsed = value(u.UsedBytes), value(u.InodesUsed)
	return f
}

// logs returns the usage of a container's logs, including rotated ones.
func (p *Provider) logs(pod *runtimeapi.PodSandboxMetadata, container string) *statsapi.FsStats {
	directory := filepath.Join(p.o.PodLogsDirectory, strings.Join([]string{pod.GetNamespace(), pod.GetName(), pod.GetUid()}, "_"), container)
	f, err := fileSystem(p.o.PodLogsDirectory, p.o.Clock.Now())
	if err != nil {
		f = &statsapi.FsStats{Time: p.now()}
	}
	entries, err := os.ReadDir(directory)
	if err != nil {
		f.UsedBytes, f.InodesUsed = nil, nil // removed meanwhile
		return f
	}
	var bytes, inodes uint64
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			bytes += uint64(max(info.Size(), 0)) //nolint:gosec // not negative
			inodes++
		}
	}
	f.UsedBytes, f.InodesUsed = &bytes, &inodes
	return f
}

// addStorage adds the usage of a pod's volumes, and its total usage of the node's
// file system.
func (p *Provider) addStorage(ctx context.Context, pod *statsapi.PodStats) {
	node, err := fileSystem(p.o.RootDirectory, p.o.Clock.Now())
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Failed to get rootFs stats", "err", err)
		return
	}
	if p.volumes != nil {
		if pod.VolumeStats, err = p.volumes(ctx, types.UID(pod.PodRef.UID)); err != nil {
			klog.FromContext(ctx).V(2).Info("Failed to measure volumes of the pod", "pod", klog.KRef(pod.PodRef.Namespace, pod.PodRef.Name), "err", err)
		}
	}
	sum := &statsapi.FsStats{
		Time: node.Time, AvailableBytes: node.AvailableBytes, CapacityBytes: node.CapacityBytes,
		Inodes: node.Inodes, InodesFree: node.InodesFree,
	}
	for _, c := range pod.Containers {
		for _, f := range []*statsapi.FsStats{c.Rootfs, c.Logs} {
			if f != nil {
				add(&sum.UsedBytes, f.UsedBytes)
				add(&sum.InodesUsed, f.InodesUsed)
			}
		}
	}
	for _, v := range pod.VolumeStats {
		// Volumes in memory or on a disk of their own do not count.
		if v.PVCRef == nil && ptr.Equal(v.CapacityBytes, node.CapacityBytes) {
			add(&sum.UsedBytes, v.UsedBytes)
			add(&sum.InodesUsed, v.InodesUsed)
		}
	}
	pod.EphemeralStorage = sum
}
