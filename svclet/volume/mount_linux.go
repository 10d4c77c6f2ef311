package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// kernel mounts by system calls: a process for each mount, as k8s.io/mount-utils
// starts it, would cost more than all else that starting a pod takes here.
type kernel struct{}

func (kernel) Mounted(path string) (bool, error) { return mountinfo.Mounted(path) }

func (kernel) Mount(fstype, target, options string) error {
	if err := unix.Mount(fstype, target, fstype, 0, options); err != nil {
		return &os.PathError{Op: "mount " + fstype, Path: target, Err: err}
	}
	return nil
}

func (kernel) Bind(source, target string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return &os.PathError{Op: "bind mount", Path: target, Err: err}
	}
	return nil
}

func (kernel) Unmount(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return &os.PathError{Op: "unmount", Path: path, Err: err}
}

func (kernel) Under(dir string) ([]Mount, error) {
	infos, err := mountinfo.GetMounts(func(info *mountinfo.Info) (skip, stop bool) {
		return info.Mountpoint != dir && !strings.HasPrefix(info.Mountpoint, dir+string(filepath.Separator)), false
	})
	if err != nil {
		return nil, fmt.Errorf("reading the table of mounts: %w", err)
	}
	mounts := make([]Mount, len(infos))
	for i, info := range infos {
		mounts[i] = Mount{
			Path: info.Mountpoint, Device: fmt.Sprintf("%d:%d", info.Major, info.Minor), Root: info.Root,
			Type: info.FSType, Options: info.VFSOptions,
		}
	}
	return mounts, nil
}

// ShareMounts makes what is mounted below dir visible in containers that ask
// for it, and the other way round (mountPropagation): dir, which must exist, is
// mounted on itself unless it lies on a shared mount already, and shared. It is
// for the start of the agent; the mount outlives it, as its pods do.
func ShareMounts(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("sharing mounts: %w", err)
	}
	var nearest *mountinfo.Info
	_, err = mountinfo.GetMounts(func(info *mountinfo.Info) (skip, stop bool) {
		above := info.Mountpoint == "/" || info.Mountpoint == dir || strings.HasPrefix(dir, info.Mountpoint+"/")
		// Of mounts on the same path, the later one hides the earlier.
		if above && (nearest == nil || len(info.Mountpoint) >= len(nearest.Mountpoint)) {
			nearest = info
		}
		return true, false
	})
	if err != nil {
		return fmt.Errorf("sharing mounts: reading the table of mounts: %w", err)
	}
	if nearest != nil && strings.Contains(nearest.Optional, "shared:") {
		return nil
	}
	if nearest == nil || nearest.Mountpoint != dir {
		if err := unix.Mount(dir, dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("sharing mounts: mounting %s on itself: %w", dir, err)
		}
	}
	if err := unix.Mount("", dir, "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("sharing mounts: making %s shared: %w", dir, err)
	}
	return nil
}
