package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/internal/exponent"
)

// mountEmptyDir sets up a volume of type emptyDir.
func (m *Manager) mountEmptyDir(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) (mountedVolume, error) {
	dir, ready := m.layout.volume(pod.UID, emptyDirPlugin, volume.Name), m.layout.ready(pod.UID, volume.Name)
	_, missing := os.Lstat(ready)
	err := m.setUpDir(pod, volume.EmptyDir, dir, ready, false)
	if err == nil && missing != nil && volume.EmptyDir.Medium == corev1.StorageMediumDefault && m.Quotas != nil {
		if err := m.Quotas.Assign(dir); err != nil {
			klog.FromContext(ctx).V(3).Info("Failed to give the volume a project quota, its files are counted instead", "pod", klog.KObj(pod), "volume", volume.Name, "err", err)
		}
	}
	return mountedVolume{
		name: volume.Name, Mounted: Mounted{HostPath: dir, Relabel: true}, measure: measureWalk,
	}, err
}

// setUpDir creates a directory on the requested medium, once: later changes of its
// mode and owner by the pod stay.
func (m *Manager) setUpDir(pod *corev1.Pod, source *corev1.EmptyDirVolumeSource, dir, ready string, readOnly bool) error {
	fstype, options, err := medium(pod, source, m.allocatable())
	if err != nil {
		return err
	}
	mounted := false
	if fstype != "" {
		if mounted, err = m.Mounter.Mounted(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if _, err := os.Lstat(ready); err == nil && mounted == (fstype != "") {
		if _, err := os.Lstat(dir); err == nil {
			return nil
		}
	}
	if err := makeEmptyDir(dir, source.Mode); err != nil {
		return err
	}
	if fstype != "" && !mounted {
		if err := m.mountMemory(fstype, dir, options); err != nil {
			return err
		}
		// The root of the new file system has its own mode.
		if err := makeEmptyDir(dir, source.Mode); err != nil {
			return err
		}
	}
	if group := fsGroup(pod); group != nil {
		if err := own(dir, *group, readOnly); err != nil {
			return err
		}
	}
	return markReady(ready)
}

// makeEmptyDir creates a directory with the mode of its volume, by default 0777.
func makeEmptyDir(dir string, mode *int32) error {
	if err := makeDir(dir, 0o777); err != nil || mode == nil {
		return err
	}
	wanted := fs.FileMode(*mode).Perm()
	if *mode&syscall.S_ISVTX != 0 {
		wanted |= fs.ModeSticky
	}
	return os.Chmod(dir, wanted)
}

// mountMemory mounts tmpfs with noswap where the kernel supports it (Linux 6.4).
func (m *Manager) mountMemory(fstype, dir, options string) error {
	if fstype == "tmpfs" {
		noswap := strings.TrimPrefix(options+",noswap", ",")
		if err := m.Mounter.Mount(fstype, dir, noswap); !errors.Is(err, syscall.EINVAL) {
			return err
		}
	}
	return m.Mounter.Mount(fstype, dir, options)
}

func markReady(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), privateDir); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	return file.Close()
}

// medium returns the file system type and the mount options of an emptyDir, or ""
// for a directory on disk.
func medium(pod *corev1.Pod, source *corev1.EmptyDirVolumeSource, allocatable corev1.ResourceList) (fstype, options string, err error) {
	switch {
	case source.Medium == corev1.StorageMediumDefault:
		return "", "", nil
	case source.Medium == corev1.StorageMediumMemory:
		if size := memorySize(pod, source.SizeLimit, allocatable); size > 0 {
			options = fmt.Sprintf("size=%d", size)
		}
		return "tmpfs", options, nil
	case source.Medium == corev1.StorageMediumHugePages,
		strings.HasPrefix(string(source.Medium), string(corev1.StorageMediumHugePagesPrefix)):
		size, err := pageSize(pod, source.Medium)
		return "hugetlbfs", "pagesize=" + size, err
	default:
		return "", "", fmt.Errorf("unknown storage medium %q", source.Medium)
	}
}

// memorySize returns the size of a memory-backed volume in bytes: the minimum of
// its size limit, the pod's memory limit and the node's allocatable memory
// (KEP-1967, SizeMemoryBackedVolumes). Zero means the kernel's default.
func memorySize(pod *corev1.Pod, limit *resource.Quantity, allocatable corev1.ResourceList) int64 {
	size := int64(0)
	for _, bound := range []int64{allocatable.Memory().Value(), podMemoryLimit(pod), limitValue(limit)} {
		if bound > 0 && (size == 0 || bound < size) {
			size = bound
		}
	}
	return size
}

func limitValue(q *resource.Quantity) int64 {
	if q == nil {
		return 0
	}
	return q.Value()
}

// podMemoryLimit returns the memory limit of the pod's cgroup in bytes: zero if a
// container has none, unless the pod itself has one.
func podMemoryLimit(pod *corev1.Pod) int64 {
	bounded := pod.Spec.Resources != nil && !pod.Spec.Resources.Limits.Memory().IsZero()
	if !bounded {
		for _, c := range podspec.NonEphemeral(&pod.Spec) {
			if c.Resources.Limits.Memory().IsZero() {
				return 0
			}
		}
	}
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	return limits.Memory().Value()
}

// pageSize returns the huge page size of a medium. A medium that does not name it
// has the only size that the containers request.
func pageSize(pod *corev1.Pod, medium corev1.StorageMedium) (string, error) {
	var wanted *resource.Quantity
	if text, named := strings.CutPrefix(string(medium), string(corev1.StorageMediumHugePagesPrefix)); named {
		size, err := exponent.Parse(text)
		if err != nil {
			return "", fmt.Errorf("medium %q: %w", medium, err)
		}
		wanted = &size
	}
	var found *resource.Quantity
	for _, requests := range resourceRequests(pod) {
		for name := range requests {
			text, huge := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
			if !huge {
				continue
			}
			size, err := exponent.Parse(text)
			if err != nil {
				return "", fmt.Errorf("resource %q: %w", name, err)
			}
			if wanted != nil && wanted.Cmp(size) != 0 {
				continue
			}
			if found != nil && found.Cmp(size) != 0 {
				return "", fmt.Errorf("medium: %s can't be used if container requests multiple huge page sizes", medium)
			}
			found = &size
		}
	}
	if found == nil {
		return "", fmt.Errorf("medium %s: hugePages storage requested, but there is no resource request for huge pages", medium)
	}
	return found.String(), nil
}

func resourceRequests(pod *corev1.Pod) []corev1.ResourceList {
	var all []corev1.ResourceList
	if pod.Spec.Resources != nil {
		all = append(all, pod.Spec.Resources.Requests)
	}
	for _, c := range podspec.NonEphemeral(&pod.Spec) {
		all = append(all, c.Resources.Requests)
	}
	return all
}
