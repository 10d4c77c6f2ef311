package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

const (
	// settleTime is how long a changed file may be incomplete before that is logged.
	settleTime = time.Second
	// rewatchPeriod is the polling period for a path that does not exist.
	rewatchPeriod = time.Second
	// minTrustedAge is the age from which on a file's modification time shows whether it has
	// changed since.
	minTrustedAge = 2 * time.Second
)

// files are the manifests of --pod-manifest-path.
type files struct {
	s *Sources
	// path has no trailing slash.
	path string
	// known are the files as last read, by path.
	known map[string]*file
	// logged is what was last logged about a path.
	logged map[string]string
	// shadowed maps a file to another one that has a pod of the same name.
	shadowed map[string]string
	// sent reports that the first update has been sent.
	sent bool
}

// file is a manifest as last read.
type file struct {
	changed time.Time
	size    int64
	read    time.Time
	// pod is nil if err is not.
	pod *corev1.Pod
	err error
	// before is the last valid pod of this file while the file is invalid.
	before *corev1.Pod
}

// readFiles watches the path of manifests until ctx is done.
func (s *Sources) readFiles(ctx context.Context) {
	f := &files{s: s, path: filepath.Clean(s.o.Path), known: map[string]*file{}, logged: map[string]string{}, shadowed: map[string]string{}}
	check := s.o.Clock.NewTicker(s.o.FileCheckFrequency)
	defer check.Stop()

	var w watched
	defer w.close()
	f.watch(ctx, &w)
	f.scan(ctx, false)
	for {
		// The timers exist only while something is pending.
		var later, again <-chan time.Time
		if f.hasUnloggedError() {
			later = s.o.Clock.After(settleTime)
		}
		if w.watcher == nil {
			again = s.o.Clock.After(w.pause)
		}
		select {
		case <-ctx.Done():
			return
		case <-check.C():
			f.scan(ctx, true)
		case <-later:
			f.scan(ctx, false)
			f.logInvalid(ctx)
		case <-again:
			if f.watch(ctx, &w); w.watcher != nil {
				f.scan(ctx, false)
			}
		case e, ok := <-w.events:
			if !ok {
				w.close()
				continue
			}
			f.event(ctx, &w, e)
		case err := <-w.errors:
			f.logOnce(ctx, f.path, fmt.Errorf("watching it failed, it is read every %v: %w", s.o.FileCheckFrequency, err))
			w.close()
			f.scan(ctx, false)
		}
	}
}

// event reads the changed files, all pending events at once.
func (f *files) event(ctx context.Context, w *watched, e fsnotify.Event) {
	concerned := false
	for more := true; more; {
		concerned = concerned || w.dir == f.path || e.Name == f.path
		f.forget(e.Name)
		if e.Name == f.path && e.Has(fsnotify.Remove|fsnotify.Rename) {
			// The directory itself was removed, and with it the watch.
			w.close()
		}
		select {
		case e, more = <-w.events:
		default:
			more = false
		}
	}
	if concerned {
		f.scan(ctx, false)
	}
}

// forget makes the next scan read the file even if its times are unchanged.
func (f *files) forget(path string) {
	if known := f.known[path]; known != nil {
		known.read = time.Time{}
	}
}

// scan reads changed files and sends the desired pods. A regular scan also removes
// pods whose files are invalid, except that of a single file: an edit that makes
// it invalid is not meant as a deletion.
func (f *files) scan(ctx context.Context, regular bool) {
	info, err := os.Stat(f.path)
	single := false
	var paths []string
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.logOnce(ctx, f.path, errors.New("it does not exist, so that it wants no pods"))
	case err != nil:
		f.logOnce(ctx, f.path, err)
		return
	case info.IsDir():
		if paths, err = manifests(f.path); err != nil {
			f.logOnce(ctx, f.path, err)
			return
		}
		delete(f.logged, f.path)
	case info.Mode().IsRegular():
		paths, single = []string{f.path}, true
	default:
		f.logOnce(ctx, f.path, errors.New("it is neither a directory nor a file: name one of these with staticPodPath (--pod-manifest-path)"))
		return
	}
	for path := range f.known {
		if !slices.Contains(paths, path) {
			delete(f.known, path)
			delete(f.logged, path)
		}
	}
	for _, path := range paths {
		f.readIfChanged(ctx, path)
		known := f.known[path]
		if regular && known != nil && known.err != nil {
			f.logOnce(ctx, path, known.err)
			if !single {
				known.before = nil
			}
		}
	}
	if single && !f.sent && f.known[f.path] != nil && f.known[f.path].err != nil {
		// The file cannot be read: none of its pods may be stopped.
		return
	}
	f.sent = true
	f.s.replace(ctx, File, f.wanted(ctx, paths))
}

// manifests lists the files of a directory in order, without those that begin with
// a dot.
func manifests(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, nil
}

// readIfChanged reads a file unless it is unchanged.
func (f *files) readIfChanged(ctx context.Context, path string) {
	now := f.s.o.Clock.Now()
	info, err := os.Stat(path)
	known := f.known[path]
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if link, err := os.Readlink(path); err == nil {
			f.logOnce(ctx, path, fmt.Errorf("it is a link to %s, which does not exist: remove it, or put the manifest there", link))
		}
		delete(f.known, path)
		return
	case err == nil && info.IsDir():
		f.logOnce(ctx, path, errors.New("it is a directory, and directories in the manifest path are not read: move its manifests up"))
		delete(f.known, path)
		return
	case err == nil && !info.Mode().IsRegular():
		f.logOnce(ctx, path, errors.New("it is not a file: remove it"))
		delete(f.known, path)
		return
	case err == nil && known != nil && !known.read.IsZero() && known.changed.Equal(info.ModTime()) && known.size == info.Size() &&
		known.read.Sub(known.changed) > minTrustedAge:
		return
	}
	fresh := &file{read: now}
	if err == nil {
		fresh.changed, fresh.size = info.ModTime(), info.Size()
		fresh.pod, err = f.read(ctx, path)
	}
	if fresh.err = err; err == nil {
		f.clear(ctx, path)
	} else if known != nil {
		if fresh.before = known.before; known.pod != nil {
			fresh.before = known.pod
		}
	}
	f.known[path] = fresh
}

// read reads the pod of a manifest.
func (f *files) read(ctx context.Context, path string) (*corev1.Pod, error) {
	opened, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	data, err := readAll(opened)
	if err != nil {
		return nil, err
	}
	m, err := parse(data)
	if err != nil {
		return nil, err
	}
	if m.list {
		return nil, errors.New("it is of kind PodList: write each pod into a file of its own")
	}
	pod := m.pods[0]
	if err := f.s.rules.complete(pod, origin{node: f.s.o.NodeName, path: path}); err != nil {
		return nil, fmt.Errorf("invalid pod: %w", err)
	}
	if known := f.known[path]; len(m.warnings) > 0 && (known == nil || known.pod == nil || known.pod.UID != pod.UID) {
		klog.FromContext(ctx).Info("Ignoring invalid fields of static pod manifest", "path", path, "warnings", m.warnings)
	}
	return pod, nil
}

// wanted returns the pods of the files. Of several with the same name the last one
// counts.
func (f *files) wanted(ctx context.Context, paths []string) []*corev1.Pod {
	byName := map[types.NamespacedName]string{}
	pods := map[string]*corev1.Pod{}
	shadowed := map[string]string{}
	for _, path := range paths {
		known := f.known[path]
		if known == nil {
			continue
		}
		pod := known.pod
		if pod == nil {
			pod = known.before
		}
		if pod == nil {
			continue
		}
		key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
		if other, ok := byName[key]; ok {
			delete(pods, other)
			shadowed[other] = path
			if f.shadowed[other] != path {
				klog.FromContext(ctx).Error(nil, "Ignoring a static pod manifest that has the same pod name as another manifest", "path", other, "other", path, "pod", key)
			}
		}
		byName[key] = path
		pods[path] = pod
	}
	f.shadowed = shadowed
	wanted := make([]*corev1.Pod, 0, len(pods))
	for _, path := range paths {
		if pod := pods[path]; pod != nil {
			wanted = append(wanted, pod)
		}
	}
	return wanted
}

// hasUnloggedError reports whether an invalid file has not been logged yet.
func (f *files) hasUnloggedError() bool {
	for path, known := range f.known {
		if known.err != nil && f.logged[path] != known.err.Error() {
			return true
		}
	}
	return false
}

// logInvalid logs all invalid files.
func (f *files) logInvalid(ctx context.Context) {
	for path, known := range f.known {
		if known.err != nil {
			f.logOnce(ctx, path, known.err)
		}
	}
}

// logOnce logs what is wrong with a path, once until that changes, and not after ctx
// is done.
func (f *files) logOnce(ctx context.Context, path string, err error) {
	if f.logged[path] == err.Error() || ctx.Err() != nil {
		return
	}
	f.logged[path] = err.Error()
	klog.FromContext(ctx).Error(err, "Failed to read static pod manifest", "path", path)
}

// clear logs that a path is valid again.
func (f *files) clear(ctx context.Context, path string) {
	if _, ok := f.logged[path]; ok {
		delete(f.logged, path)
		klog.FromContext(ctx).Info("Successfully read static pod manifest again", "path", path)
	}
}
