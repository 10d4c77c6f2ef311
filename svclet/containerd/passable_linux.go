package containerd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// others are the permissions of all users of the machine.
const others fs.FileMode = 0o007

// pass lets the users of pods' user namespaces reach the files of their containers: they
// are users of the machine without rights. They may pass Config.PassableFrom and Dir, and
// neither list them nor use anything else that is in them.
func (c Config) pass() error {
	if c.PassableFrom == "" {
		return nil
	}
	if err := passable(c.Dir, filepath.Base(c.root()), filepath.Base(c.runDir())); err != nil {
		return err
	}
	info, err := os.Stat(c.PassableFrom)
	if err != nil || info.Mode()&0o001 != 0 {
		return err // what is in it is used by others as its owner wants
	}
	return passable(c.PassableFrom, filepath.Base(c.Dir))
}

// passable lets all users pass a directory, after it has taken their permissions from what
// is in it, except the named directories.
func passable(dir string, except ...string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if slices.Contains(except, entry.Name()) || entry.Type()&fs.ModeSymlink != 0 {
			continue
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has been removed meanwhile
		}
		if err != nil {
			return err
		}
		if mode := info.Mode(); mode&others != 0 {
			if err := os.Chmod(filepath.Join(dir, entry.Name()), mode&^others); err != nil {
				return err
			}
		}
	}
	return os.Chmod(dir, info.Mode()&^others|0o001)
}
