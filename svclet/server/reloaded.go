package server

import (
	"fmt"
	"os"
	"sync"

	"k8s.io/klog/v2"
)

// reloaded is a value that is loaded from files. It is reloaded on use after one
// of the files has changed; if the new content is invalid, as it may be during a
// rotation, the last valid value is kept.
type reloaded[T any] struct {
	what  string
	paths []string
	parse func(files [][]byte) (T, error)

	mu     sync.Mutex
	value  T
	good   bool
	seen   []os.FileInfo // the state of the files when value was loaded
	failed string        // the last failure, which is logged once
}

// get returns the value, and an error only if there has never been a valid one.
func (f *reloaded[T]) get() (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, err := f.stat()
	if err == nil && f.good && f.same(now) {
		return f.value, nil
	}
	if err == nil {
		err = f.load(now)
	}
	switch {
	case err == nil:
		f.failed = ""
	case !f.good:
		return f.value, fmt.Errorf("load the %s: %w", f.what, err)
	case err.Error() != f.failed:
		f.failed = err.Error()
		klog.Background().Error(err, "Failed to reload files, keeping their previous content", "content", f.what, "files", f.paths)
	}
	return f.value, nil
}

func (f *reloaded[T]) stat() ([]os.FileInfo, error) {
	infos := make([]os.FileInfo, len(f.paths))
	for i, path := range f.paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		infos[i] = info
	}
	return infos, nil
}

func (f *reloaded[T]) same(now []os.FileInfo) bool {
	for i, info := range now {
		old := f.seen[i]
		if !os.SameFile(old, info) || old.Size() != info.Size() || !old.ModTime().Equal(info.ModTime()) {
			return false
		}
	}
	return true
}

func (f *reloaded[T]) load(now []os.FileInfo) error {
	contents := make([][]byte, len(f.paths))
	for i, path := range f.paths {
		var err error
		if contents[i], err = os.ReadFile(path); err != nil {
			return err
		}
	}
	value, err := f.parse(contents)
	if err != nil {
		return fmt.Errorf("%s: %w", f.paths[0], err)
	}
	f.value, f.good, f.seen = value, true, now
	return nil
}
