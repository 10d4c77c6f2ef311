package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// file is a file that a volume shows.
type file struct {
	data []byte
	mode fs.FileMode
	// user owns the file; nil means the agent's user.
	user *int64
}

// Names in an atomically written directory. Names of volume files never begin with
// two dots.
const (
	dataLink    = "..data"
	newDataLink = "..data_tmp"
	stampFormat = "..2006_01_02_15_04_05."
)

// writer updates the files of a directory atomically: a reader who opens ..data
// sees either the old set or the new set. The files are in a directory named after
// the time, ..data is a symlink to it that is replaced by one rename, and the
// names that users see are symlinks into ..data. The layout is that of kubelet's
// atomic writer.
type writer struct {
	dir string
	now time.Time
	// own sets the ownership of new files before they are published.
	own func() error
}

// write replaces the files. It does nothing if the files are unchanged, and
// completes what an earlier call that was interrupted began.
func (w writer) write(files map[string]file) error {
	files, err := cleanPaths(files)
	if err != nil {
		return err
	}
	current, err := os.Readlink(w.path(dataLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// A link out of the directory was not made by the writer.
	if current != filepath.Base(current) || !strings.HasPrefix(current, "..") {
		current = ""
	}
	same, err := w.shows(current, files)
	if err != nil {
		return err
	}
	if !same {
		if current, err = w.publish(files); err != nil {
			return err
		}
	}
	if err := w.link(files); err != nil {
		return err
	}
	return w.removeOld(current, files)
}

func (w writer) path(elements ...string) string {
	return filepath.Join(append([]string{w.dir}, elements...)...)
}

// shows reports whether the directory current has exactly these files.
func (w writer) shows(current string, files map[string]file) (bool, error) {
	if current == "" {
		return false, nil
	}
	seen, other := 0, false
	err := filepath.WalkDir(w.path(current), func(full string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(w.path(current), full)
		if err != nil {
			return err
		}
		wanted, ok := files[name]
		if !ok {
			other = true
			return fs.SkipAll
		}
		data, err := os.ReadFile(full)
		if err == nil && bytes.Equal(data, wanted.data) {
			seen++
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && !other && seen == len(files), err
}

// publish writes the files into a new directory and makes it the current one.
func (w writer) publish(files map[string]file) (string, error) {
	dir, err := os.MkdirTemp(w.dir, w.now.UTC().Format(stampFormat))
	if err != nil {
		return "", err
	}
	if err := w.fill(dir, files); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	name := filepath.Base(dir)
	if err := os.Remove(w.path(newDataLink)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := os.Symlink(name, w.path(newDataLink)); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	if err := os.Rename(w.path(newDataLink), w.path(dataLink)); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return name, nil
}

func (w writer) fill(dir string, files map[string]file) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	for name, f := range files {
		full := filepath.Join(dir, name)
		if err := makeParents(dir, name); err != nil {
			return err
		}
		if err := os.WriteFile(full, f.data, f.mode); err != nil {
			return err
		}
		if err := os.Chmod(full, f.mode); err != nil {
			return err
		}
		if f.user != nil {
			if err := os.Lchown(full, int(*f.user), -1); err != nil {
				return err
			}
		}
	}
	if w.own == nil {
		return nil
	}
	return w.own()
}

// makeParents creates the parent directories of name below dir, with access for
// all users.
func makeParents(dir, name string) error {
	for i, c := range name {
		if c != '/' {
			continue
		}
		if err := makeDir(filepath.Join(dir, name[:i]), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// link creates the symlinks that users see.
func (w writer) link(files map[string]file) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		top, _, _ := strings.Cut(name, "/")
		err := os.Symlink(path.Join(dataLink, top), w.path(top))
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		if user := files[name].user; user != nil {
			if err := os.Lchown(w.path(top), int(*user), -1); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeOld removes symlinks to files that no longer exist, and the directories of
// earlier sets.
func (w writer) removeOld(current string, files map[string]file) error {
	wanted := map[string]bool{dataLink: true, current: true}
	for name := range files {
		top, _, _ := strings.Cut(name, "/")
		wanted[top] = true
	}
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		switch {
		case wanted[name]:
		case strings.HasPrefix(name, ".."):
			err = os.RemoveAll(w.path(name))
		case e.Type()&fs.ModeSymlink != 0:
			if to, _ := os.Readlink(w.path(name)); to == path.Join(dataLink, name) {
				err = os.Remove(w.path(name))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cleanPaths checks that the files' paths stay below the directory.
func cleanPaths(files map[string]file) (map[string]file, error) {
	clean := make(map[string]file, len(files))
	for name, f := range files {
		if err := checkPath(name); err != nil {
			return nil, err
		}
		clean[filepath.Clean(name)] = f
	}
	return clean, nil
}

// Linux's limits, in bytes.
const (
	maxPath = 4096
	maxName = 255
)

func checkPath(name string) error {
	switch {
	case name == "" || filepath.Clean(name) == ".":
		return fmt.Errorf("invalid path: must not be empty: %q", name)
	case path.IsAbs(name):
		return fmt.Errorf("invalid path: must be relative path: %s", name)
	case len(name) > maxPath:
		return fmt.Errorf("invalid path: must be less than or equal to %d characters", maxPath)
	}
	for _, element := range strings.Split(name, "/") {
		if element == ".." {
			return fmt.Errorf("invalid path: must not contain '..': %s", name)
		}
		if len(element) > maxName {
			return fmt.Errorf("invalid path: filenames must be less than or equal to %d characters", maxName)
		}
	}
	if strings.HasPrefix(filepath.Clean(name), "..") {
		return fmt.Errorf("invalid path: must not start with '..': %s", name)
	}
	return nil
}
