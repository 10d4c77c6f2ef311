package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/mount-utils"
	"k8s.io/utils/exec"
	"k8s.io/utils/ptr"
)

// defaultFSType is the file system of block devices whose volume names none, as in kubelet.
const defaultFSType = "ext4"

// device returns the directory on which the block device of a volume of type local is mounted,
// for all pods.
func (l layout) device(volume string) string {
	return filepath.Join(l.root, pluginsDir, "kubernetes.io", "local-volume", "mounts", volume)
}

// formatAndMount checks the file system of a device and mounts it on dir. A device without one
// is formatted first, unless the options have "ro".
func formatAndMount(device, dir, fstype string, options []string) error {
	return mount.NewSafeFormatAndMount(mount.New(""), exec.New()).FormatAndMount(device, dir, fstype, options)
}

// resizeFilesystem makes the file system of a device, which is mounted on dir, as large as the
// device.
func resizeFilesystem(device, dir string) error {
	_, err := mount.NewResizeFs(exec.New()).Resize(device, dir)
	return err
}

// mountDevice mounts the block device of a volume of type local, unless it is mounted, and
// returns where. The volume's lock is held.
func (m *Manager) mountDevice(pv *corev1.PersistentVolume, readOnly bool) (string, error) {
	dir := m.layout.device(pv.Name)
	there, err := m.Mounter.Mounted(dir)
	if there || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}
	if err := os.MkdirAll(dir, privateDir); err != nil {
		return dir, err
	}
	options := mountOptions(pv)
	if readOnly {
		options = append([]string{"ro"}, options...)
	}
	fstype := ptr.Deref(pv.Spec.Local.FSType, defaultFSType)
	if err := m.FormatAndMount(pv.Spec.Local.Path, dir, fstype, options); err != nil {
		return dir, fmt.Errorf("local: failed to mount device %s at %s (fstype: %s), error %w", pv.Spec.Local.Path, dir, fstype, err)
	}
	return dir, nil
}

// releaseDevices unmounts the block devices of a pod's volumes of type local that no other pod
// uses. Those of the pod are unmounted already, and their directories are still there.
func (m *Manager) releaseDevices(uid types.UID) error {
	volumes, err := os.ReadDir(m.layout.volume(uid, localPlugin, ""))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, v := range volumes {
		if err := m.releaseDevice(v.Name()); err != nil {
			return fmt.Errorf("unmounting the device of volume %s: %w", v.Name(), err)
		}
	}
	return nil
}

func (m *Manager) releaseDevice(volume string) error {
	dir := m.layout.device(volume)
	if _, err := m.Mounter.Mounted(dir); errors.Is(err, fs.ErrNotExist) {
		return nil // A directory is not locked: another pod's first mount of it may take long.
	}
	m.devices.LockKey(volume)
	defer func() { _ = m.devices.UnlockKey(volume) }()
	there, err := m.Mounter.Mounted(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if there {
		mounts, err := m.Mounter.Under(filepath.Join(m.RootDir, podsDir))
		if err != nil {
			return err
		}
		for _, mounted := range mounts {
			if strings.HasSuffix(mounted.Path, filepath.Join("/", volumesDir, localPlugin, volume)) {
				return nil // another pod uses it
			}
		}
		if err := m.Mounter.Unmount(dir); err != nil {
			return err
		}
	}
	return os.Remove(dir)
}
