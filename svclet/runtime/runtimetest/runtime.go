package runtimetest

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	eventsapi "github.com/containerd/containerd/api/services/events/v1"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
)

// Options are those of [Start].
type Options struct {
	// Socket is the path of the unix socket to serve at. The system bounds it
	// to about 100 bytes.
	Socket string
	// Name is the runtime's name, "fake" if it is empty. By the name
	// "containerd" it serves containerd's own events as well.
	Name string
	// Events reports whether it supports CRI's GetContainerEvents.
	Events bool
	// CgroupDriver is what it reports of its configuration; nil reports none, as older
	// runtimes.
	CgroupDriver *runtimeapi.CgroupDriver
	// Images exist from the start. Any image can be pulled.
	Images []string
	// Behave returns how a container behaves after its start. If it is nil, containers
	// run until they are stopped.
	Behave func(*runtimeapi.ContainerConfig) Behaviour
	// Exec runs a command in a container; if it is nil, it succeeds and writes
	// nothing.
	Exec func(container *runtimeapi.ContainerConfig, command []string) ExecResult
	// Clock is the system clock by default.
	Clock clock.WithDelayedExecution
}

// Behaviour is how a container behaves.
type Behaviour struct {
	// EndsAfter is how long it runs; zero means until it is stopped.
	EndsAfter time.Duration
	// End is how it ends after that.
	End End
	// StopTakes is how long it takes to end when it is stopped. If that is longer than
	// the grace period, the container is killed (137).
	StopTakes time.Duration
	// StopCode is its exit code when it is stopped.
	StopCode int32
}

// End is how a container ends.
type End struct {
	Code int32
	// Reason is "Completed" or "Error", by the code, if it is empty.
	Reason, Message string
}

// ExecResult is the result of a command.
type ExecResult struct {
	Stdout, Stderr []byte
	Code           int32
	// Err is the error of the request if the command cannot be run.
	Err error
}

// Runtime is a fake runtime.
type Runtime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
	options Options

	mu         sync.Mutex
	server     *grpc.Server
	served     chan error
	count      uint64
	sandboxes  map[string]*sandbox
	containers map[string]*container
	// pods are the ids of sandboxes and containers, by their pod.
	pods       map[types.UID]map[string]bool
	images     map[string]*runtimeapi.Image
	pullErrors map[string]error
	conditions []*runtimeapi.RuntimeCondition
	rules      map[string][]*Rule
	calls      map[string]int
	listeners  map[*listener]bool
	// held are changes that events have announced and that are not visible yet.
	holding bool
	held    []func()
}

// Start serves a runtime that has no pods.
func Start(options Options) (*Runtime, error) {
	options.Name = cmp.Or(options.Name, "fake")
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.Behave == nil {
		options.Behave = func(*runtimeapi.ContainerConfig) Behaviour { return Behaviour{} }
	}
	if options.Exec == nil {
		options.Exec = func(*runtimeapi.ContainerConfig, []string) ExecResult { return ExecResult{} }
	}
	r := &Runtime{
		options:    options,
		sandboxes:  map[string]*sandbox{},
		containers: map[string]*container{},
		pods:       map[types.UID]map[string]bool{},
		images:     map[string]*runtimeapi.Image{},
		pullErrors: map[string]error{},
		rules:      map[string][]*Rule{},
		calls:      map[string]int{},
		listeners:  map[*listener]bool{},
		conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: true},
			{Type: runtimeapi.NetworkReady, Status: true},
		},
	}
	for _, name := range options.Images {
		r.AddImage(name, 1<<20)
	}
	return r, r.Up()
}

// Endpoint returns the URL of the socket.
func (r *Runtime) Endpoint() string { return "unix://" + r.options.Socket }

// Up serves again after Down, with the same pods.
func (r *Runtime) Up() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.server != nil {
		return errors.New("the runtime is up")
	}
	if err := os.Remove(r.options.Socket); err != nil && !os.IsNotExist(err) {
		return err
	}
	socket, err := net.Listen("unix", r.options.Socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer(
		grpc.UnaryInterceptor(r.unary), grpc.StreamInterceptor(r.stream),
		grpc.ReadBufferSize(4<<10), grpc.WriteBufferSize(4<<10),
	)
	runtimeapi.RegisterRuntimeServiceServer(server, r)
	runtimeapi.RegisterImageServiceServer(server, r)
	if r.options.Name == "containerd" {
		eventsapi.RegisterEventsServer(server, containerdEvents{runtime: r})
	}
	r.server, r.served = server, make(chan error, 1)
	go func(served chan<- error) { served <- server.Serve(socket) }(r.served)
	return nil
}

// Down breaks all connections and removes the socket. Containers keep running. It
// panics if the runtime has failed to serve.
func (r *Runtime) Down() {
	r.mu.Lock()
	server, served := r.server, r.served
	r.server = nil
	for listener := range r.listeners {
		listener.end()
	}
	r.mu.Unlock()
	if server == nil {
		return
	}
	server.Stop()
	if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // that of one that had not begun
		panic(err)
	}
}

// Close ends the runtime and all its containers.
func (r *Runtime) Close() {
	r.Down()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.containers {
		c.stopTimer()
	}
}

// Pods lists the pods that have sandboxes or containers.
func (r *Runtime) Pods() []types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	var uids []types.UID
	for uid := range r.pods {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	return uids
}

// Container returns the ID of the newest container of a name in a pod, empty if there
// is none.
func (r *Runtime) Container(uid types.UID, name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var newest *container
	for id := range r.pods[uid] {
		c := r.containers[id]
		if c != nil && c.config.GetMetadata().GetName() == name && (newest == nil || c.number > newest.number) {
			newest = c
		}
	}
	if newest == nil {
		return ""
	}
	return newest.status.Id
}

// Sandbox returns the ID of the newest sandbox of a pod, empty if there is none.
func (r *Runtime) Sandbox(uid types.UID) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var newest *sandbox
	for id := range r.pods[uid] {
		if s := r.sandboxes[id]; s != nil && (newest == nil || s.number > newest.number) {
			newest = s
		}
	}
	if newest == nil {
		return ""
	}
	return newest.status.Id
}

// SetEvents sets whether the runtime supports GetContainerEvents. Open streams
// continue.
func (r *Runtime) SetEvents(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.options.Events = on
}

// SetCondition changes a condition of the runtime's status.
func (r *Runtime) SetCondition(condition *runtimeapi.RuntimeCondition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conditions = append(slices.DeleteFunc(slices.Clone(r.conditions), func(c *runtimeapi.RuntimeCondition) bool {
		return c.GetType() == condition.GetType()
	}), condition)
}

// Hold delays changes of containers until Release: events announce them at once,
// but answers do not show them yet, as happens for a moment with containerd.
func (r *Runtime) Hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holding = true
}

// Release makes the held changes visible, and ends Hold.
func (r *Runtime) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holding = false
	for _, show := range r.held {
		show()
	}
	r.held = nil
}

// identity returns a new ID, and a number that is higher than those of older objects.
// The caller holds mu.
func (r *Runtime) identity() (uint64, string) {
	r.count++
	return r.count, fmt.Sprintf("%064x", r.count)
}

// addID records the pod of a sandbox or a container. The caller holds mu.
func (r *Runtime) addID(uid types.UID, id string) {
	if r.pods[uid] == nil {
		r.pods[uid] = map[string]bool{}
	}
	r.pods[uid][id] = true
}

// removeID is the reverse of addID. The caller holds mu.
func (r *Runtime) removeID(uid types.UID, id string) {
	delete(r.pods[uid], id)
	if len(r.pods[uid]) == 0 {
		delete(r.pods, uid)
	}
}

// candidates returns the IDs among which a filter selects: those of a pod, or nil for
// all. The caller holds mu.
func (r *Runtime) candidates(id string, selector map[string]string) (map[string]bool, bool) {
	if id != "" {
		return map[string]bool{id: true}, true
	}
	if uid, ok := selector["io.kubernetes.pod.uid"]; ok {
		return r.pods[types.UID(uid)], true
	}
	return nil, false
}
