package plugins

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/klog/v2"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/clock"
)

// Plugin is a plugin that has described itself.
type Plugin struct {
	// Name identifies the plugin among those of its type.
	Name string
	// Endpoint is the path of the socket at which it serves.
	Endpoint string
	// Versions are those of its API that it supports.
	Versions []string
}

// Handler handles the plugins of one type.
type Handler interface {
	// Register makes a plugin usable. An error is in the status that the plugin is notified
	// of, and the registration is retried.
	Register(ctx context.Context, p Plugin) error
	// Deregister is called when the socket of a registered plugin has gone.
	Deregister(ctx context.Context, p Plugin)
}

// Options are what a [Watcher] works with. All fields are required.
type Options struct {
	// Dir is the directory of the registration sockets. Run creates it.
	Dir string
	// Handlers are those of the types of plugins that the agent supports.
	Handlers map[string]Handler
	Clock    clock.Clock
}

const (
	// callTimeout bounds each call of a plugin.
	callTimeout = 10 * time.Second
	// scanPeriod is how often the directory is read without a change.
	scanPeriod = time.Minute
	// The bounds of the back-off after a plugin could not be registered.
	minRetry, maxRetry = 500 * time.Millisecond, 2*time.Minute + 2*time.Second
)

// Watcher registers plugins. Its fields belong to the goroutine of Run.
type Watcher struct {
	o       Options
	sockets map[string]*socket
	// registering are the paths of sockets at which a registration is in flight; results
	// receives its result.
	registering map[string]bool
	results     chan result
	// watched are the directories that are watched.
	watched map[string]bool
}

// socket is a registration socket. A plugin that has restarted has created another file.
type socket struct {
	file os.FileInfo
	// plugin is what the handler has accepted, of this file or of the one that it has
	// replaced; nil before.
	plugin *registerapi.PluginInfo
	// registered is whether the plugin of this file has been notified of its registration.
	registered bool
	retry      time.Duration
	retryAfter time.Time
}

// result is the end of a registration. info is nil if the handler has not accepted the
// plugin.
type result struct {
	path   string
	socket *socket
	info   *registerapi.PluginInfo
	err    error
}

// New returns a watcher that does nothing before [Watcher.Run].
func New(o Options) *Watcher {
	return &Watcher{o: o, sockets: map[string]*socket{}, registering: map[string]bool{}, results: make(chan result), watched: map[string]bool{}}
}

// Run registers plugins until ctx is done.
func (w *Watcher) Run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	if err := os.MkdirAll(w.o.Dir, 0o750); err != nil {
		logger.Error(err, "Failed to create the directory of plugins, no plugin can register", "dir", w.o.Dir)
		return
	}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		logger.Error(err, "Failed to watch the directory of plugins, it is read periodically", "dir", w.o.Dir, "period", scanPeriod)
		notify = &fsnotify.Watcher{}
	} else {
		defer notify.Close()
	}
	var group sync.WaitGroup
	defer group.Wait()
	for {
		pause := w.sync(ctx, &group, notify, err == nil)
		timer := w.o.Clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-notify.Events:
		case r := <-w.results:
			w.registered(ctx, r)
		case problem := <-notify.Errors:
			logger.Error(problem, "Failed to watch the directory of plugins", "dir", w.o.Dir)
		case <-timer.C():
		}
		timer.Stop()
	}
}

// sync brings the registrations in line with the sockets in the directory, and returns
// when it is to be called next without a change. Plugins register by themselves, in group:
// one that hangs does not keep others.
func (w *Watcher) sync(ctx context.Context, group *sync.WaitGroup, notify *fsnotify.Watcher, watch bool) time.Duration {
	found := w.scan(ctx, notify, watch)
	for path, s := range w.sockets {
		if file := found[path]; file != nil && os.SameFile(file, s.file) && file.ModTime().Equal(s.file.ModTime()) {
			continue
		}
		delete(w.sockets, path)
		switch {
		case found[path] != nil:
			// A plugin that has been replaced stays usable until the new one is registered.
			w.sockets[path] = &socket{file: found[path], plugin: s.plugin}
		case s.plugin != nil:
			w.deregister(ctx, path, s.plugin)
		}
	}
	next := scanPeriod
	now := w.o.Clock.Now()
	for path, file := range found {
		s := w.sockets[path]
		if s == nil {
			s = &socket{file: file}
			w.sockets[path] = s
		}
		if s.registered || w.registering[path] {
			continue
		}
		if now.Before(s.retryAfter) {
			next = min(next, max(s.retryAfter.Sub(now), minRetry))
			continue
		}
		w.registering[path] = true
		group.Go(func() {
			info, err := w.handshake(ctx, path)
			select {
			case w.results <- result{path, s, info, err}:
			case <-ctx.Done():
			}
		})
	}
	return next
}

// scan returns the sockets in the directory and those below it, without those whose name
// begins with a dot, and watches new directories.
func (w *Watcher) scan(ctx context.Context, notify *fsnotify.Watcher, watch bool) map[string]os.FileInfo {
	found := map[string]os.FileInfo{}
	present := map[string]bool{}
	var add func(dir string)
	add = func(dir string) {
		present[dir] = true
		if watch && !w.watched[dir] {
			if err := notify.Add(dir); err != nil {
				klog.FromContext(ctx).Error(err, "Failed to watch a directory of plugins, it is read periodically", "dir", dir, "period", scanPeriod)
			}
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Failed to read a directory of plugins", "dir", dir)
		}
		for _, entry := range entries {
			path := filepath.Join(dir, entry.Name())
			switch {
			case strings.HasPrefix(entry.Name(), "."):
			case entry.IsDir():
				add(path)
			case entry.Type() == os.ModeSocket:
				if info, err := entry.Info(); err == nil {
					found[path] = info
				}
			}
		}
	}
	add(w.o.Dir)
	w.watched = present // a directory that was removed is not watched any more
	return found
}

// registered handles the end of a registration.
func (w *Watcher) registered(ctx context.Context, r result) {
	delete(w.registering, r.path)
	s := w.sockets[r.path]
	switch {
	case s == nil && r.info != nil: // its socket has gone meanwhile
		w.deregister(ctx, r.path, r.info)
		return
	case s == nil:
		return
	case r.info != nil:
		if old := s.plugin; old != nil && (old.Type != r.info.Type || old.Name != r.info.Name) {
			w.deregister(ctx, r.path, old)
		}
		s.plugin = r.info
	}
	switch {
	case s != r.socket: // it has been replaced meanwhile, and is registered next
	case r.err == nil:
		s.registered = true
		klog.FromContext(ctx).Info("Registered plugin", "type", r.info.Type, "plugin", r.info.Name, "endpoint", pluginOf(r.info, r.path).Endpoint)
	default:
		if s.retry = min(2*s.retry, maxRetry); s.retry == 0 {
			s.retry = minRetry
		}
		s.retryAfter = w.o.Clock.Now().Add(s.retry)
		klog.FromContext(ctx).Error(r.err, "Failed to register plugin, will retry", "socket", r.path, "after", s.retry)
	}
}

func (w *Watcher) deregister(ctx context.Context, path string, info *registerapi.PluginInfo) {
	w.o.Handlers[info.Type].Deregister(ctx, pluginOf(info, path))
	klog.FromContext(ctx).Info("Deregistered plugin", "type", info.Type, "plugin", info.Name)
}

// handshake gets the description of a plugin, passes it on to the handler of its type, and
// notifies the plugin of the result. It returns what the handler has accepted, even if the
// notification has failed.
func (w *Watcher) handshake(ctx context.Context, path string) (*registerapi.PluginInfo, error) {
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	client := registerapi.NewRegistrationClient(conn)
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	info, err := client.GetInfo(call, &registerapi.InfoRequest{})
	if err != nil {
		return nil, fmt.Errorf("the plugin does not describe itself: %w", err)
	}
	problem := w.accept(ctx, info, path)
	status := &registerapi.RegistrationStatus{PluginRegistered: problem == nil}
	if problem != nil {
		status.Error = problem.Error()
	}
	notify, done := context.WithTimeout(ctx, callTimeout)
	defer done()
	if _, err := client.NotifyRegistrationStatus(notify, status); err != nil {
		err = fmt.Errorf("notify the plugin of its registration: %w", err)
		if problem == nil {
			return info, err
		}
		return nil, errors.Join(problem, err)
	}
	if problem != nil {
		return nil, problem
	}
	return info, nil
}

// accept passes a plugin on to the handler of its type.
func (w *Watcher) accept(ctx context.Context, info *registerapi.PluginInfo, path string) error {
	handler := w.o.Handlers[info.Type]
	switch {
	case handler == nil:
		return fmt.Errorf("plugin %q has the type %q, which svclet does not support", info.Name, info.Type)
	case info.Name == "":
		return fmt.Errorf("a plugin of type %s has no name", info.Type)
	case len(info.SupportedVersions) == 0:
		return fmt.Errorf("plugin %q supports no version of its API", info.Name)
	}
	return handler.Register(ctx, pluginOf(info, path))
}

func pluginOf(info *registerapi.PluginInfo, path string) Plugin {
	p := Plugin{Name: info.Name, Endpoint: info.Endpoint, Versions: slices.Clone(info.SupportedVersions)}
	if p.Endpoint == "" {
		p.Endpoint = path
	}
	return p
}
