package logs

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

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Runtime writes the logs.
type Runtime interface {
	// ReopenLog makes the runtime write to a new file.
	ReopenLog(ctx context.Context, containerID string) error
}

// Options configure a [Manager].
type Options struct {
	Runtime Runtime
	// Running returns the running containers. It is called once per interval and after
	// each failure, so it should not make requests to the runtime.
	Running func() []Container
	// Dir is the directory of pods' logs: /var/log/pods.
	Dir string
	// LinkDir is the directory of links to them: /var/log/containers.
	LinkDir string
	// MaxSize is the size in bytes above which a log is rotated (containerLogMaxSize);
	// less than 0 means never.
	MaxSize int64
	// MaxFiles is the maximum number of files per container, including the current one
	// (containerLogMaxFiles): at least 2.
	MaxFiles int
	// Workers is the number of parallel rotations (containerLogMaxWorkers), 1 by
	// default.
	Workers int
	// Interval is how often sizes are checked at least (containerLogMonitorInterval), 10
	// seconds by default. A log that grows fast is checked when it reaches MaxSize at that
	// rate.
	Interval time.Duration
	// Clock is the system clock by default.
	Clock clock.Clock
}

// Manager rotates, links and removes the logs of this node's containers.
type Manager struct {
	options Options
	growth  growth
}

// New creates the directories of logs and links if they do not exist.
func New(o Options) (*Manager, error) {
	if o.MaxFiles < 2 {
		return nil, fmt.Errorf("at most %d log files of a container: must be 2 or more", o.MaxFiles)
	}
	if o.Workers < 1 {
		o.Workers = 1
	}
	if o.Interval <= 0 {
		o.Interval = 10 * time.Second
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	for _, dir := range []string{o.Dir, o.LinkDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	return &Manager{options: o, growth: growth{at: o.Clock.Now()}}, nil
}

// Run rotates logs until ctx is done.
func (m *Manager) Run(ctx context.Context) {
	if m.options.MaxSize < 0 {
		<-ctx.Done()
		return
	}
	timer := m.options.Clock.NewTimer(m.options.Interval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
		}
		timer.Reset(m.checkAll(ctx))
	}
}

// checkAll checks the log of each running container once. It returns when to check again.
func (m *Manager) checkAll(ctx context.Context) time.Duration {
	var workers errgroup.Group
	workers.SetLimit(m.options.Workers)
	now, sizes := m.options.Clock.Now(), map[string]int64{}
	for _, c := range m.options.Running() {
		if ctx.Err() != nil {
			break
		}
		if info, err := os.Lstat(c.Path); err == nil {
			// A log that does not exist although its container runs is rotated, too.
			if sizes[c.Path] = info.Size(); info.Size() < m.options.MaxSize {
				continue
			}
		}
		workers.Go(func() error {
			if err := m.rotateIfNeeded(ctx, c); err != nil && ctx.Err() == nil {
				klog.ErrorS(err, "Failed to rotate log for container", "path", c.Path, "container", c.Name, "pod", klog.KRef(c.PodNamespace, c.PodName))
			}
			return nil
		})
	}
	_ = workers.Wait() // workers return no errors: each logs its own
	return m.growth.next(now, sizes, m.options.MaxSize, m.options.Interval)
}

// rotateIfNeeded rotates the log of a container if necessary. It is not an error if the
// runtime does not reopen the log because the container has exited.
func (m *Manager) rotateIfNeeded(ctx context.Context, c Container) error {
	err := m.rotate(ctx, c.ID, c.Path)
	if err != nil && !slices.ContainsFunc(m.options.Running(), func(other Container) bool { return other.ID == c.ID }) {
		return nil
	}
	return err
}

// Link creates the link to the log of a started container for log collectors. It
// does nothing if the container has no log.
func (m *Manager) Link(c Container) error {
	link := filepath.Join(m.options.LinkDir, c.link())
	if _, err := os.Lstat(c.Path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err := os.Symlink(c.Path, link)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if to, err := os.Readlink(link); err == nil && to == c.Path {
		return nil
	}
	if err := os.Remove(link); err != nil {
		return err
	}
	return os.Symlink(c.Path, link)
}

// Remove removes the log of a container, its rotated files, and the link.
func (m *Manager) Remove(c Container) error {
	dir, log := filepath.Split(c.Path)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var failed []error
	for _, entry := range entries {
		if name := entry.Name(); name == log || strings.HasPrefix(name, log+".") {
			failed = append(failed, remove(filepath.Join(dir, name)))
		}
	}
	return errors.Join(append(failed, remove(filepath.Join(m.options.LinkDir, c.link())))...)
}

// Pods returns the generated UIDs of all pods with a log directory.
func (m *Manager) Pods() ([]types.UID, error) {
	directories, err := os.ReadDir(m.options.Dir)
	if err != nil {
		return nil, err
	}
	var uids []types.UID
	for _, directory := range directories {
		if uid := generatedUIDOf(directory); uid != "" {
			uids = append(uids, uid)
		}
	}
	return uids, nil
}

// RemovePod removes all logs of a pod, and the links to them.
func (m *Manager) RemovePod(uid types.UID) error {
	return m.removePods(func(directory fs.DirEntry) bool { return uid != "" && uidOf(directory.Name()) == uid })
}

// Sweep removes the logs of unknown pods with generated UIDs, and links without a log. It must
// not be called before all pods of this node are known.
func (m *Manager) Sweep(known func(types.UID) bool) error {
	return m.removePods(func(directory fs.DirEntry) bool {
		uid := generatedUIDOf(directory)
		return uid != "" && !known(uid)
	})
}

func (m *Manager) removePods(gone func(fs.DirEntry) bool) error {
	pods, err := os.ReadDir(m.options.Dir)
	failed := []error{err}
	for _, entry := range pods {
		if gone(entry) {
			failed = append(failed, os.RemoveAll(filepath.Join(m.options.Dir, entry.Name())))
		}
	}
	return errors.Join(append(failed, m.sweepLinks())...)
}

// sweepLinks removes dangling links. The link of a running container is dangling
// for a moment during a rotation.
func (m *Manager) sweepLinks() error {
	links, err := os.ReadDir(m.options.LinkDir)
	if err != nil {
		return err
	}
	running := map[string]bool{}
	for _, c := range m.options.Running() {
		running[c.link()] = true
	}
	var failed []error
	for _, entry := range links {
		if entry.Type() != fs.ModeSymlink || !strings.HasSuffix(entry.Name(), linkSuffix) || running[entry.Name()] {
			continue
		}
		link := filepath.Join(m.options.LinkDir, entry.Name())
		if _, err := os.Stat(link); errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, remove(link))
		}
	}
	return errors.Join(failed...)
}

// remove removes a file if it exists.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
