package plugins

import (
	"cmp"
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/clock"
)

// plugin is a plugin of the type "test".
type plugin struct {
	registerapi.UnimplementedRegistrationServer
	name string
	// path is its socket; name in the directory if it is empty.
	path     string
	notified chan *registerapi.RegistrationStatus
}

func (p *plugin) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Type: "test", Name: p.name, SupportedVersions: []string{"v1"}}, nil
}

func (p *plugin) NotifyRegistrationStatus(_ context.Context, status *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	p.notified <- status
	return &registerapi.RegistrationStatusResponse{}, nil
}

// serve serves the plugin at a socket in dir, until stop is called.
func (p *plugin) serve(t *testing.T, dir string) (stop func()) {
	t.Helper()
	p.notified = make(chan *registerapi.RegistrationStatus, 10)
	listener, err := net.Listen("unix", cmp.Or(p.path, filepath.Join(dir, p.name)))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	registerapi.RegisterRegistrationServer(server, p)
	go func() { _ = server.Serve(listener) }() // until stop
	stop = sync.OnceFunc(server.Stop)
	t.Cleanup(stop)
	return stop
}

// handler records the plugins.
type handler struct {
	mu      sync.Mutex
	plugins []string
	// hang, if it is set, is what the registration of the plugin "hangs" waits for.
	hang chan struct{}
}

func (h *handler) Register(ctx context.Context, p Plugin) error {
	if p.Name == "hangs" && h.hang != nil {
		select {
		case <-h.hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.plugins = append(h.plugins, p.Name)
	return nil
}

func (h *handler) Deregister(_ context.Context, p Plugin) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.plugins = slices.DeleteFunc(h.plugins, func(name string) bool { return name == p.Name })
}

func (h *handler) has(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.plugins, name)
}

// watching runs a watcher until the test ends, and returns its directory.
func watching(t *testing.T, h *handler) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "plugins") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	w := New(Options{Dir: dir, Handlers: map[string]Handler{"test": h}, Clock: clock.RealClock{}})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait(); os.RemoveAll(dir) })
	return dir
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(time.Minute); !holds(); {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

func TestAPluginIsRegisteredWhileItsSocketIsThere(t *testing.T) {
	h := &handler{}
	dir := watching(t, h)
	p := &plugin{name: "good"}
	stop := p.serve(t, dir)
	if status := <-p.notified; !status.PluginRegistered || !h.has("good") {
		t.Errorf("the plugin is notified of %v", status)
	}
	stop() // which removes the socket
	eventually(t, "the plugin is deregistered", func() bool { return !h.has("good") })
	p.serve(t, dir)
	eventually(t, "the plugin is registered again", func() bool { return h.has("good") })
}

func TestAPluginThatHangsDoesNotKeepOthers(t *testing.T) {
	h := &handler{hang: make(chan struct{})}
	dir := watching(t, h)
	(&plugin{name: "hangs"}).serve(t, dir)
	for _, name := range []string{"first", "second"} {
		(&plugin{name: name}).serve(t, dir)
		eventually(t, name+" is registered", func() bool { return h.has(name) })
	}
	if h.has("hangs") {
		t.Error("the plugin that hangs is registered")
	}
	close(h.hang)
	eventually(t, "the plugin that has hung is registered", func() bool { return h.has("hangs") })
}

func TestAPluginIsDeregisteredWhenAnotherHasReplacedItsSocket(t *testing.T) {
	h := &handler{}
	dir := watching(t, h)
	(&plugin{name: "old"}).serve(t, dir)
	eventually(t, "the plugin is registered", func() bool { return h.has("old") })
	next := filepath.Join(dir, ".next") // no socket of a plugin
	(&plugin{name: "new", path: next}).serve(t, dir)
	if err := os.Rename(next, filepath.Join(dir, "old")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other plugin is registered", func() bool { return h.has("new") })
	eventually(t, "the plugin is deregistered", func() bool { return !h.has("old") })
}
