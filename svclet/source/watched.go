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

// watched is a watch on the path of manifests, if there is one. Its channels
// are nil otherwise.
type watched struct {
	watcher *fsnotify.Watcher
	// dir is what is watched.
	dir    string
	events <-chan fsnotify.Event
	errors <-chan error
	// pause is how long to wait before the next attempt, without a watch.
	pause time.Duration
}

// watch begins to watch the path: a directory, or the directory of the one
// file, which may be replaced by another one.
func (f *files) watch(ctx context.Context, w *watched) {
	w.pause = f.s.o.FileCheckFrequency
	info, err := os.Stat(f.path)
	if err != nil {
		w.pause = min(w.pause, rewatch)
		if !errors.Is(err, fs.ErrNotExist) {
			f.say(ctx, f.path, err)
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
		f.say(ctx, f.path, fmt.Errorf("it cannot be watched, it is read every %v: %w", f.s.o.FileCheckFrequency, err))
		return
	}
	w.watcher, w.dir, w.events, w.errors = watcher, dir, watcher.Events, watcher.Errors
}

func (w *watched) close() {
	if w.watcher != nil {
		w.watcher.Close()
	}
	*w = watched{pause: rewatch}
}
