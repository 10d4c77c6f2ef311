package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watched is a watch on the path of manifests, if there is one. Otherwise its
// channels are nil.
type watched struct {
	watcher *fsnotify.Watcher
	// dir is the watched directory.
	dir    string
	events <-chan fsnotify.Event
	errors <-chan error
	// pause is the time until the next attempt, if there is no watch.
	pause time.Duration
}

// watch starts to watch the path: a directory, or the directory of a single file,
// which may be replaced by rename.
func (f *files) watch(ctx context.Context, w *watched) {
	w.pause = f.s.o.FileCheckFrequency
	info, err := os.Stat(f.path)
	if err != nil {
		w.pause = min(w.pause, rewatchPeriod)
		if !errors.Is(err, fs.ErrNotExist) {
			f.logOnce(ctx, f.path, err)
		}
		return
	}
	dir := f.path
	if !info.IsDir() {
		dir = filepath.Dir(f.path)
	}
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		if err = watcher.Add(dir); err != nil {
			watcher.Close()
		}
	}
	if errors.Is(err, syscall.EMFILE) {
		err = fmt.Errorf("%w: raise fs.inotify.max_user_instances with sysctl, or --max-open-files", err)
	}
	if err != nil {
		f.logOnce(ctx, f.path, fmt.Errorf("it cannot be watched, it is read every %v: %w", f.s.o.FileCheckFrequency, err))
		return
	}
	w.watcher, w.dir, w.events, w.errors = watcher, dir, watcher.Events, watcher.Errors
}

func (w *watched) close() {
	if w.watcher != nil {
		w.watcher.Close()
	}
	*w = watched{pause: rewatchPeriod}
}
