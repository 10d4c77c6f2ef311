package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxDepth is how deep RemoveTree descends, which bounds the open directories.
// Deeper directories are first moved up, so that hundreds of thousands of nested
// directories can be removed.
const maxDepth = 64

// remover removes a directory tree without leaving it.
type remover struct {
	top   *os.File
	moved int
}

// RemoveTree removes a directory and everything in it. It neither follows symlinks
// nor enters mount points, for which it returns EXDEV. It is not an error if the
// directory does not exist.
func RemoveTree(ctx context.Context, path string) error {
	parent, err := os.Open(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer parent.Close()
	name := filepath.Base(path)
	top, err := openDirectory(parent, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer top.Close()
	r := &remover{top: top}
	if err := r.empty(ctx, top, 0); err != nil {
		return err
	}
	return unlink(parent, name, unix.AT_REMOVEDIR)
}

// empty removes the content of an open directory, until it is empty.
func (r *remover) empty(ctx context.Context, dir *os.File, depth int) error {
	for {
		// A file system may skip names while others are removed.
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return err
		}
		entries, err := dir.ReadDir(256)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := r.remove(ctx, dir, e.Name(), depth); err != nil {
				return err
			}
		}
	}
}

func (r *remover) remove(ctx context.Context, dir *os.File, name string, depth int) error {
	err := unlink(dir, name, 0)
	// For a directory, Linux returns EISDIR, and POSIX EPERM.
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return err
	}
	if depth >= maxDepth {
		return r.moveUp(dir, name)
	}
	child, err := openDirectory(dir, name)
	if err != nil {
		return err
	}
	defer child.Close()
	if err := r.empty(ctx, child, depth+1); err != nil {
		return err
	}
	return unlink(dir, name, unix.AT_REMOVEDIR)
}

// moveUp moves a directory into the top one, where it is removed later.
func (r *remover) moveUp(dir *os.File, name string) error {
	for {
		r.moved++
		to := "removed-" + strconv.Itoa(r.moved)
		err := unix.Renameat2(int(dir.Fd()), name, int(r.top.Fd()), to, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			return fmt.Errorf("moving a deep directory %s up: %w", filepath.Join(dir.Name(), name), err)
		}
		return nil
	}
}

func openDirectory(parent *os.File, name string) (*os.File, error) {
	return openAt(parent, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
}

func unlink(parent *os.File, name string, flags int) error {
	err := unix.Unlinkat(int(parent.Fd()), name, flags)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return &os.PathError{Op: "unlinkat", Path: filepath.Join(parent.Name(), name), Err: err}
}
