package containerd

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// RemoveRoot removes what an agent has made in its root directory, and the directory too if
// nothing else is in it. It returns the names of what is kept: others have made it. The file
// that marks the directory goes last, so that a removal that has failed can be repeated.
func RemoveRoot(ctx context.Context, dir string) (kept []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	errs := []error{err}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		switch {
		case !isRootEntry(entry.Name()) || entry.Name() == LockFile:
		case entry.IsDir():
			errs = append(errs, RemoveUnmounted(ctx, path))
		default:
			errs = append(errs, os.Remove(path))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := os.Remove(filepath.Join(dir, LockFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if kept, err = foreignEntries(dir); err != nil || len(kept) > 0 {
		return kept, err
	}
	return nil, removeEmpty(dir)
}

// removeEmpty removes an empty directory, and the symlink if its path is one.
func removeEmpty(dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	if err := os.Remove(real); err != nil {
		return err
	}
	if err := os.Remove(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// unmountRoot unmounts what is mounted at the root directory of an agent, and in what the
// agent has made in it.
func unmountRoot(dir string) error {
	real, mounts, err := mountsUnder(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return unmount(slices.DeleteFunc(mounts, func(mount string) bool {
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(mount, real), "/"), "/")
		return name != "" && !isRootEntry(name)
	}))
}
