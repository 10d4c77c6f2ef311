package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/apis/localpath"
	"svc.dev/svc/svclet/csi"
	"svc.dev/svc/svclet/volumeexpansion"
)

// localVolume is a PersistentVolume of type local that a pod uses.
type localVolume struct {
	pod *corev1.Pod
	// name is that of the pod's volume.
	name     string
	pv       *corev1.PersistentVolume
	claim    *corev1.PersistentVolumeClaim
	readOnly bool
}

// mountLocal mounts a volume of type local, and expands it if it has grown. block reports whether
// containers use it as a block device.
func (m *Manager) mountLocal(ctx context.Context, v localVolume, block bool) (mountedVolume, error) {
	if !isName(v.pv.Name) {
		return mountedVolume{}, fmt.Errorf("name %q of the volume cannot be a directory's name", v.pv.Name)
	}
	mount := m.mountFilesystem
	if block {
		mount = m.localDevice
	}
	mounted, err := mount(ctx, v)
	// The controller of expansions writes the size of a volume of the provisioner svc.dev/local-path.
	if err != nil || m.Expansion == nil || localpath.Made(v.pv) {
		return mounted, err
	}
	mounted.grows = string(v.pv.UID)
	return mounted, m.expandLocal(ctx, v, block)
}

// expandLocal expands a volume that has grown. Only the file system of a block device is
// expanded: a directory, and a device without one, are as large as they are (NodeExpand of
// kubelet's plugin).
func (m *Manager) expandLocal(ctx context.Context, v localVolume, block bool) error {
	m.devices.LockKey(v.pv.Name)
	defer func() { _ = m.devices.UnlockKey(v.pv.Name) }()
	growing := &volumeexpansion.Volume{Key: string(v.pv.UID), Pod: v.pod, PV: v.pv, Claim: v.claim, ReadOnly: v.readOnly}
	if !m.Expansion.Due(growing) {
		return nil
	}
	return m.Expansion.Expand(ctx, growing, func() error {
		if block {
			return nil
		}
		dir := m.layout.device(v.pv.Name)
		if device, err := m.Mounter.Mounted(dir); !device {
			return ignoreMissing(err)
		}
		return m.ResizeFilesystem(v.pv.Spec.Local.Path, dir)
	})
}

// localDevice returns a volume of type local that is a block device.
func (m *Manager) localDevice(_ context.Context, v localVolume) (mountedVolume, error) {
	path := v.pv.Spec.Local.Path
	if err := checkNoParent(path); err != nil {
		return mountedVolume{}, fmt.Errorf("invalid path: %s %w", path, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return mountedVolume{}, err
	}
	if info.Mode().Type() != os.ModeDevice {
		return mountedVolume{}, fmt.Errorf("local volume %q has volumeMode Block: %s is not a block device", v.pv.Name, path)
	}
	m.devices.LockKey(v.pv.Name)
	defer func() { _ = m.devices.UnlockKey(v.pv.Name) }()
	return mountedVolume{name: v.name, Mounted: Mounted{Device: path, ReadOnly: v.readOnly}}, m.reserve(v)
}

// reserve makes the directory that a pod has for a volume of type local: when the pod ends, it says
// which devices the pod may have been the last one to use. A volume for one pod is refused while
// another pod has such a directory. The volume is locked.
func (m *Manager) reserve(v localVolume) error {
	has := func(uid types.UID) (bool, error) {
		_, err := m.Mounter.Mounted(m.layout.volume(uid, localPlugin, v.pv.Name))
		return err == nil, ignoreMissing(err)
	}
	own, err := has(v.pod.UID)
	if err != nil || own {
		return err
	}
	if csi.IsForOnePod(v.pv) {
		uids, err := m.UIDs()
		if err != nil {
			return err
		}
		for _, uid := range uids {
			if used, err := has(uid); used || err != nil {
				return cmp.Or(err, csi.ErrInUse)
			}
		}
	}
	return os.MkdirAll(m.layout.volume(v.pod.UID, localPlugin, v.pv.Name), privateDir)
}

// mountFilesystem mounts the directory of a volume of type local, or the file system of its
// device.
func (m *Manager) mountFilesystem(ctx context.Context, v localVolume) (mountedVolume, error) {
	source := v.pv.Spec.Local.Path
	mounted := mountedVolume{name: v.name, Mounted: Mounted{HostPath: source, ReadOnly: v.readOnly}}
	if source == "" {
		return mounted, fmt.Errorf("LocalVolume volume %q path is empty", v.pv.Name)
	}
	if err := checkNoParent(source); err != nil {
		return mounted, fmt.Errorf("invalid path: %s %w", source, err)
	}
	dir := m.layout.volume(v.pod.UID, localPlugin, v.pv.Name)
	mounted.HostPath, mounted.Relabel, mounted.measure = dir, !v.readOnly, measureFilesystem
	// What is mounted is not entered again: its file system may not respond, and the pod's end
	// would wait for that.
	if there, err := m.Mounter.Mounted(dir); there || ignoreMissing(err) != nil {
		return mounted, err
	}
	return mounted, m.mountFirst(ctx, v, dir)
}

// mountFirst mounts the directory of a volume of type local, or the file system of its device, on
// the directory that the pod has for it.
func (m *Manager) mountFirst(ctx context.Context, v localVolume, dir string) error {
	source := v.pv.Spec.Local.Path
	if err := m.makeProvisioned(v.pv); err != nil {
		return err
	}
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	device := info.Mode().Type() == os.ModeDevice
	if !device && !info.IsDir() {
		return errors.New("only directory and block device are supported")
	}
	m.devices.LockKey(v.pv.Name)
	defer func() { _ = m.devices.UnlockKey(v.pv.Name) }()
	if err := m.reserve(v); err != nil {
		return err
	}
	options := mountOptions(v.pv)
	if device {
		if source, err = m.mountDevice(v.pv, v.readOnly); err != nil {
			return err
		}
		options = nil // the file system has them
	}
	if err := m.bindLocal(v.pod, source, dir, v.readOnly); err != nil || len(options) == 0 {
		return err
	}
	if err := m.MountCommand(ctx, "-o", "bind,remount,"+strings.Join(options, ","), "--", source, dir); err != nil {
		return errors.Join(err, m.Mounter.Unmount(dir))
	}
	return nil
}

// ignoreMissing returns err unless a path does not exist.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// bindLocal mounts source on dir, and sets the pod's fsGroup on it unless another
// pod already uses it.
func (m *Manager) bindLocal(pod *corev1.Pod, source, dir string, readOnly bool) error {
	group := fsGroup(pod)
	if group != nil && !readOnly {
		policy := pod.Spec.SecurityContext.FSGroupChangePolicy
		mismatch := policy != nil && *policy == corev1.FSGroupChangeOnRootMismatch
		used, err := m.usedElsewhere(source, dir)
		if err != nil {
			return err
		}
		if !used && !(mismatch && owned(source, *group, false)) {
			if err := own(source, *group, false); err != nil {
				return err
			}
		}
	}
	return m.Mounter.Bind(source, dir)
}

// usedElsewhere reports whether another pod has source mounted.
func (m *Manager) usedElsewhere(source, dir string) (bool, error) {
	info, err := os.Stat(source)
	if err != nil {
		return false, err
	}
	mounts, err := m.Mounter.Under(filepath.Join(m.RootDir, podsDir))
	if err != nil {
		return false, err
	}
	for _, mount := range mounts {
		if mount.Path == dir || !strings.Contains(mount.Path, localPlugin) {
			continue
		}
		if other, err := os.Stat(mount.Path); err == nil && os.SameFile(info, other) {
			return true, nil
		}
	}
	return false, nil
}
