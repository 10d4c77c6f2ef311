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

// kernel mounts with system calls. k8s.io/mount-utils runs a process for each
// mount, which would take more time than everything else in the start of a pod.
type kernel struct{}

func (kernel) Mounted(path string) (bool, error) {
	parent, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return false, err
	}
	defer parent.Close()
	file, err := openAt(parent, filepath.Base(path), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_XDEV,
	})
	if errors.Is(err, unix.EXDEV) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, file.Close()
}

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

// ShareMounts makes dir, which must exist, a shared mount, which mountPropagation
// needs. It bind-mounts dir on itself unless it is on a shared mount already. The
// agent calls it when it starts; the mount outlives the agent, like its pods.
func ShareMounts(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("sharing mounts: %w", err)
	}
	var nearest *mountinfo.Info
	_, err = mountinfo.GetMounts(func(info *mountinfo.Info) (skip, stop bool) {
		above := info.Mountpoint == "/" || info.Mountpoint == dir || strings.HasPrefix(dir, info.Mountpoint+"/")
		// Of several mounts on one path, the last one hides the others.
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
