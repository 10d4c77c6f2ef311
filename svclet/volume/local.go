package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/apis/localpath"
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
	mount := m.mountFilesystem
	if block {
		mount = localDevice
	}
	mounted, err := mount(v)
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
		info, err := os.Stat(v.pv.Spec.Local.Path)
		if err != nil || info.IsDir() {
			return err
		}
		return m.ResizeFilesystem(v.pv.Spec.Local.Path, m.layout.device(v.pv.Name))
	})
}

// localDevice returns a volume of type local that is a block device.
func localDevice(v localVolume) (mountedVolume, error) {
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
	return mountedVolume{name: v.name, Mounted: Mounted{Device: path, ReadOnly: v.readOnly}}, nil
}

// mountFilesystem mounts the directory of a volume of type local, or the file system of its
// device.
func (m *Manager) mountFilesystem(v localVolume) (mountedVolume, error) {
	source := v.pv.Spec.Local.Path
	mounted := mountedVolume{name: v.name, Mounted: Mounted{HostPath: source, ReadOnly: v.readOnly}}
	if source == "" {
		return mounted, fmt.Errorf("LocalVolume volume %q path is empty", v.pv.Name)
	}
	if err := checkNoParent(source); err != nil {
		return mounted, fmt.Errorf("invalid path: %s %w", source, err)
	}
	if err := m.makeProvisioned(v.pv); err != nil {
		return mounted, err
	}
	info, err := os.Stat(source)
	if err != nil {
		return mounted, err
	}
	device := info.Mode().Type() == os.ModeDevice
	switch {
	case !device && !info.IsDir():
		return mounted, errors.New("only directory and block device are supported")
	case !isName(v.pv.Name):
		return mounted, fmt.Errorf("name %q of the volume cannot be a directory's name", v.pv.Name)
	}
	dir := m.layout.volume(v.pod.UID, localPlugin, v.pv.Name)
	mounted.HostPath, mounted.Relabel, mounted.measure = dir, !v.readOnly, measureFilesystem
	// When the pod ends, its directory says which devices it may have been the last one to use.
	if err := os.MkdirAll(dir, privateDir); err != nil {
		return mounted, err
	}
	m.devices.LockKey(v.pv.Name)
	defer func() { _ = m.devices.UnlockKey(v.pv.Name) }()
	if there, err := m.Mounter.Mounted(dir); err != nil || there {
		return mounted, err
	}
	if device {
		if source, err = m.mountDevice(v.pv, v.readOnly); err != nil {
			return mounted, err
		}
	}
	return mounted, m.bindLocal(v.pod, source, dir, v.readOnly)
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
