package flexvolume

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/svclet/checkpoint"
)

// volumeName returns the name of a volume's device: the driver's, or that of the volume.
func volumeName(ctx context.Context, d driver, v Volume, options map[string]string) (string, error) {
	a, err := d.call(ctx, "getvolumename", encode(options))
	name := a.VolumeName
	if errors.Is(err, errNotSupported) {
		name, err = v.Name, nil
	}
	if err != nil {
		return "", err
	}
	if escaped := escape(name); escaped == "" || escaped == "." || escaped == ".." || len(escaped) > 255 || strings.ContainsRune(escaped, 0) {
		return "", fmt.Errorf("the FlexVolume driver %s calls a volume %q, which cannot be a directory's name", d.name, name)
	}
	return name, nil
}

// attach attaches a device to the node and mounts it, unless it is mounted.
func (m *Manager) attach(ctx context.Context, d driver, v Volume, r record, options map[string]string) error {
	m.devices.Lock()
	defer m.devices.Unlock()
	there, err := m.o.Mounter.Mounted(r.Device)
	if there || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	attached, err := d.call(ctx, "attach", encode(options), m.o.NodeName)
	if err != nil && !errors.Is(err, errNotSupported) {
		return err
	}
	device := attached.Device
	waited, err := d.call(ctx, "waitforattach", device, encode(options))
	switch {
	case errors.Is(err, errNotSupported):
	case err != nil:
		return err
	case waited.Device != "":
		device = waited.Device
	}
	if err := os.MkdirAll(r.Device, directoryMode); err != nil {
		return err
	}
	_, err = d.call(ctx, "mountdevice", r.Device, device, encode(options))
	if !errors.Is(err, errNotSupported) {
		return err
	}
	return m.mountDevice(ctx, device, r, v)
}

// mountDevice mounts a device for a driver without the command mountdevice.
func (m *Manager) mountDevice(ctx context.Context, device string, r record, v Volume) error {
	if device == "" {
		return fmt.Errorf("the FlexVolume driver %s attached no device, and does not support mountdevice", r.Driver)
	}
	var args, options []string
	if v.Source.FSType != "" {
		args = append(args, "-t", v.Source.FSType)
	}
	if v.ReadOnly {
		options = append(options, "ro")
	}
	if options = append(options, v.MountOptions...); len(options) > 0 {
		args = append(args, "-o", strings.Join(options, ","))
	}
	if err := m.o.MountCommand(ctx, append(args, "--", device, r.Device)...); err != nil {
		return fmt.Errorf("%w; the device needs a file system, unless the FlexVolume driver supports mountdevice", err)
	}
	return nil
}

// release detaches the device of a volume if no other one uses it, and forgets the volume.
// file is its record.
func (m *Manager) release(ctx context.Context, file string, r record) error {
	m.devices.Lock()
	defer m.devices.Unlock()
	if r.Device != "" {
		used, err := m.used(r.Device, file)
		if err != nil {
			return err
		}
		if !used {
			if err := m.detach(ctx, r); err != nil {
				return err
			}
		}
	}
	return os.Remove(file)
}

// detach unmounts and detaches a device.
func (m *Manager) detach(ctx context.Context, r record) error {
	d, err := m.driver(ctx, r.Driver)
	gone := errors.Is(err, fs.ErrNotExist)
	if err == nil {
		_, err = d.call(ctx, "unmountdevice", r.Device)
	}
	if gone || errors.Is(err, errNotSupported) {
		err = m.o.Mounter.Unmount(r.Device)
	}
	if err != nil {
		return err
	}
	if err := os.Remove(r.Device); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the directory of a device: %w", err)
	}
	if gone {
		return nil
	}
	if _, err := d.call(ctx, "detach", r.VolumeName, m.o.NodeName); err != nil && !errors.Is(err, errNotSupported) {
		return err
	}
	return nil
}

// used reports whether there is a volume of a device, beside the one with this record.
func (m *Manager) used(device, record string) (bool, error) {
	pods, err := os.ReadDir(filepath.Join(m.o.RootDir, podsDir))
	if err != nil {
		return false, err
	}
	for _, pod := range pods {
		records, err := m.records(types.UID(pod.Name()))
		if err != nil {
			return false, err
		}
		for file, r := range records {
			if r.Device == device && file != record {
				return true, nil
			}
		}
	}
	return false, nil
}

// save writes the record of a volume.
func (m *Manager) save(uid types.UID, r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(m.recordDir(uid), directoryMode); err != nil {
		return err
	}
	name := sha256.Sum256([]byte(r.Path))
	return checkpoint.Replace(filepath.Join(m.recordDir(uid), hex.EncodeToString(name[:])+".json"), text)
}
