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
	// Images are there from the start. Any image can be pulled.
	Images []string
	// Behave says what becomes of a container that is started; if it is nil,
	// containers run until they are told to end.
	Behave func(*runtimeapi.ContainerConfig) Behaviour
	// Exec runs a command in a container; if it is nil, it succeeds and writes
	// nothing.
	Exec func(container *runtimeapi.ContainerConfig, command []string) ExecResult
	// Clock is the system's if it is nil.
	Clock clock.WithDelayedExecution
}

// Behaviour is what a container does of itself.
type Behaviour struct {
	// EndsAfter is how long it runs; zero is until it is told to end.
	EndsAfter time.Duration
	// End is how it ends then.
	End End
	// StopTakes is how long it takes to end when it is asked to. What takes
	// longer than its grace period is killed (137).
	StopTakes time.Duration
	// StopCode is its exit code then.
	StopCode int32
}

// End is how a container ends.
type End struct {
	Code int32
	// Reason is "Completed" or "Error", by the code, if it is empty.
	Reason, Message string
}

// ExecResult is what becomes of a command.
type ExecResult struct {
	Stdout, Stderr []byte
	Code           int32
	// Err is the request's, if the command could not be run.
	Err error
}

// Runtime is a runtime that runs nothing.
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
	// held are changes that are announced but not shown yet.
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

// Endpoint is where it serves.
func (r *Runtime) Endpoint() string { return "unix://" + r.options.Socket }

// Up serves again after Down, with the pods that there were.
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

// Down breaks all connections and takes the socket away. Containers run on.
// It panics if the runtime could not serve.
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

// Container gives the id of the newest container of that name of a pod; empty
// if there is none.
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

// Sandbox gives the id of the newest sandbox of a pod; empty if there is none.
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

// SetEvents changes whether the runtime has GetContainerEvents. Streams that
// are open go on.
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

// Hold makes changes of containers, from now on, be announced by events at
// once, but be shown only after Release: containerd does so for a moment.
func (r *Runtime) Hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holding = true
}

// Release shows what was held, and holds nothing any more.
func (r *Runtime) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holding = false
	for _, show := range r.held {
		show()
	}
	r.held = nil
}

// identity makes a new id, and the number by which newer things are told from
// older ones. The caller holds mu.
func (r *Runtime) identity() (uint64, string) {
	r.count++
	return r.count, fmt.Sprintf("%064x", r.count)
}

// place notes to which pod a thing belongs. The caller holds mu.
func (r *Runtime) place(uid types.UID, id string) {
	if r.pods[uid] == nil {
		r.pods[uid] = map[string]bool{}
	}
	r.pods[uid][id] = true
}

// displace is the reverse of place. The caller holds mu.
func (r *Runtime) displace(uid types.UID, id string) {
	delete(r.pods[uid], id)
	if len(r.pods[uid]) == 0 {
		delete(r.pods, uid)
	}
}

// candidates are the ids among which a filter selects: all of them (nil), or
// those of a pod. The caller holds mu.
func (r *Runtime) candidates(id string, selector map[string]string) (map[string]bool, bool) {
	if id != "" {
		return map[string]bool{id: true}, true
	}
	if uid, ok := selector["io.kubernetes.pod.uid"]; ok {
		return r.pods[types.UID(uid)], true
	}
	return nil, false
}
