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
	// ReopenLog makes the runtime go on in a new file.
	ReopenLog(ctx context.Context, containerID string) error
}

// Options of a [Manager].
type Options struct {
	Runtime Runtime
	// Running are the containers that run now. It is called once in each
	// interval and after each failure, and ought not to ask the runtime.
	Running func() []Container
	// Dir is where the logs of pods are: /var/log/pods.
	Dir string
	// LinkDir is where the links to them are: /var/log/containers.
	LinkDir string
	// MaxSize in bytes of a log before it is rotated (containerLogMaxSize); less
	// than 0 is any size.
	MaxSize int64
	// MaxFiles of a container, the one that is written to among them
	// (containerLogMaxFiles): at least 2.
	MaxFiles int
	// Workers is how many logs are rotated at once (containerLogMaxWorkers): 1
	// by default.
	Workers int
	// Interval is how often sizes are looked at (containerLogMonitorInterval):
	// 10 seconds by default.
	Interval time.Duration
	// Clock is the time; the real one by default.
	Clock clock.Clock
}

// Manager looks after the logs of this node's containers.
type Manager struct{ options Options }

// New makes the directories of logs and links, if they are not there.
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
	return &Manager{options: o}, nil
}

// Run rotates logs as they grow, until the context ends.
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
		m.round(ctx)
		timer.Reset(m.options.Interval)
	}
}

// round looks once at the log of each container that runs. Those of containers
// that have ended grow no more.
func (m *Manager) round(ctx context.Context) {
	var workers errgroup.Group
	workers.SetLimit(m.options.Workers)
	for _, c := range m.options.Running() {
		if ctx.Err() != nil {
			break
		}
		if !m.needsCare(c.Path) {
			continue
		}
		workers.Go(func() error {
			if err := m.care(ctx, c); err != nil && ctx.Err() == nil {
				klog.ErrorS(err, "Failed to rotate log for container", "path", c.Path, "container", c.Name, "pod", klog.KRef(c.PodNamespace, c.PodName))
			}
			return nil
		})
	}
	_ = workers.Wait() // No worker fails: each has logged why it did not do its work.
}

// care rotates the log of a container. That the runtime opens none for a
// container that has ended meanwhile is no error.
func (m *Manager) care(ctx context.Context, c Container) error {
	err := m.rotate(ctx, c.ID, c.Path)
	if err != nil && !slices.ContainsFunc(m.options.Running(), func(other Container) bool { return other.ID == c.ID }) {
		return nil
	}
	return err
}

// needsCare says whether a log is too large, or is not there although its
// container runs.
func (m *Manager) needsCare(path string) bool {
	info, err := os.Lstat(path)
	return err != nil || info.Size() >= m.options.MaxSize
}

// Link links the log of a container that has started to where collectors of
// logs look for it. A container without a log gets no link.
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

// Remove removes the log of a container that is gone, the rotated ones, and the
// link.
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

// Pods are those that have a directory of logs, whether they are known or not.
func (m *Manager) Pods() ([]types.UID, error) {
	directories, err := os.ReadDir(m.options.Dir)
	if err != nil {
		return nil, err
	}
	var uids []types.UID
	for _, directory := range directories {
		if strings.Count(directory.Name(), "_") == 2 {
			uids = append(uids, uidOf(directory.Name()))
		}
	}
	return uids, nil
}

// RemovePod removes all logs of a pod that is gone, and the links to them.
func (m *Manager) RemovePod(uid types.UID) error {
	return m.removePods(func(other types.UID) bool { return other == uid })
}

// Sweep removes the logs of pods that are not known, and links to logs that are
// not there. It must not be called before all pods of this node are known.
func (m *Manager) Sweep(known func(types.UID) bool) error {
	return m.removePods(func(uid types.UID) bool { return !known(uid) })
}

func (m *Manager) removePods(gone func(types.UID) bool) error {
	pods, err := os.ReadDir(m.options.Dir)
	failed := []error{err}
	for _, entry := range pods {
		if gone(uidOf(entry.Name())) {
			failed = append(failed, os.RemoveAll(filepath.Join(m.options.Dir, entry.Name())))
		}
	}
	return errors.Join(append(failed, m.sweepLinks())...)
}

// sweepLinks removes the links that lead nowhere. That of a container that runs
// does for a moment while its log is rotated.
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

// remove removes a file, if it is there.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
