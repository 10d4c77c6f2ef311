package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// bindSubPath mounts subPath of the volume on target. It mounts the descriptor
// that it has opened inside the volume, so later changes of names have no effect.
func (m *Manager) bindSubPath(volume, subPath, target string) error {
	root, err := os.OpenFile(volume, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	source, err := openInside(root, subPath, unix.O_PATH)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeInside(root, subPath); err != nil {
			return fmt.Errorf("%w: %w", errMakingSubPath, err)
		}
		source, err = openInside(root, subPath, unix.O_PATH)
	}
	if err != nil {
		return err
	}
	defer source.Close()
	return m.bindOpen(source, target)
}

// bindOpen mounts an open file or directory on target, unless it is mounted there
// already.
func (m *Manager) bindOpen(source *os.File, target string) error {
	info, err := source.Stat()
	if err != nil {
		return err
	}
	mounted, err := m.Mounter.Mounted(target)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if mounted {
		if there, err := os.Lstat(target); err == nil && os.SameFile(info, there) {
			return nil
		}
		if err := m.Mounter.Unmount(target); err != nil {
			return err
		}
	}
	if err := makeTarget(target, info.IsDir()); err != nil {
		return err
	}
	return m.Mounter.Bind(fmt.Sprintf("/proc/self/fd/%d", source.Fd()), target)
}

// makeTarget creates the mount point: a directory for a directory, a file for
// anything else. It replaces one of the other kind left by an earlier mount.
func makeTarget(target string, dir bool) error {
	if err := os.MkdirAll(filepath.Dir(target), privateDir); err != nil {
		return err
	}
	if info, err := os.Lstat(target); err == nil && info.IsDir() != dir {
		if err := os.Remove(target); err != nil {
			return err
		}
	}
	if dir {
		err := os.Mkdir(target, privateDir)
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	file, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY|unix.O_NOFOLLOW, 0o640)
	if err != nil {
		return err
	}
	return file.Close()
}

// attempts bounds the retries when the kernel cannot determine whether a path
// stays inside, because of a concurrent rename.
const attempts = 100

// openInside opens a path below dir. Symlinks are followed as long as they stay
// below dir; one that is absolute or leads out is an error, EXDEV.
func openInside(dir *os.File, path string, flags uint64) (*os.File, error) {
	return openAt(dir, path, &unix.OpenHow{
		Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	})
}

func openAt(dir *os.File, path string, how *unix.OpenHow) (*os.File, error) {
	for range attempts {
		fd, err := unix.Openat2(int(dir.Fd()), path, how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), filepath.Join(dir.Name(), path)), nil
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			continue
		default:
			return nil, &os.PathError{Op: "openat2", Path: filepath.Join(dir.Name(), path), Err: err}
		}
	}
	return nil, &os.PathError{Op: "openat2", Path: filepath.Join(dir.Name(), path), Err: unix.EAGAIN}
}

// makeInside creates the directories of a path below root, with root's mode.
func makeInside(root *os.File, path string) error {
	info, err := root.Stat()
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return &os.PathError{Op: "mkdir", Path: root.Name(), Err: unix.ENOTDIR}
	}
	mode := kernelMode(info.Mode())
	parent, done := root, ""
	for _, name := range strings.Split(filepath.Clean(path), "/") {
		done = filepath.Join(done, name)
		next, err := openInside(root, done, unix.O_PATH|unix.O_DIRECTORY)
		if errors.Is(err, fs.ErrNotExist) {
			next, err = makeChild(parent, name, mode)
		}
		if parent != root {
			parent.Close()
		}
		if err != nil {
			return err
		}
		parent = next
	}
	if parent != root {
		parent.Close()
	}
	return nil
}

// makeChild creates one directory in an open one. The directory that is then
// opened may have been replaced meanwhile, but not by a symlink.
func makeChild(parent *os.File, name string, mode uint32) (*os.File, error) {
	path := filepath.Join(parent.Name(), name)
	if err := unix.Mkdirat(int(parent.Fd()), name, mode); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, &os.PathError{Op: "mkdirat", Path: path, Err: err}
	}
	child, err := openAt(parent, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return nil, err
	}
	// Mkdirat applies the umask.
	if err := unix.Fchmod(int(child.Fd()), mode); err != nil {
		child.Close()
		return nil, &os.PathError{Op: "chmod", Path: path, Err: err}
	}
	return child, nil
}

func kernelMode(mode fs.FileMode) uint32 {
	bits := uint32(mode.Perm())
	if mode&fs.ModeSetgid != 0 {
		bits |= unix.S_ISGID
	}
	if mode&fs.ModeSetuid != 0 {
		bits |= unix.S_ISUID
	}
	if mode&fs.ModeSticky != 0 {
		bits |= unix.S_ISVTX
	}
	return bits
}
