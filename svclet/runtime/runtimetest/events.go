package runtimetest

import (
	"context"

	containerdevents "github.com/containerd/containerd/api/events"
	eventsapi "github.com/containerd/containerd/api/services/events/v1"
	containerdtypes "github.com/containerd/containerd/api/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// unread is how many events wait for a listener that does not read. Further events
// are lost, as they are with containerd.
const unread = 1000

// listener is an open stream of events, of CRI or of containerd.
type listener struct {
	cri        chan *runtimeapi.ContainerEventResponse
	containerd chan *containerdtypes.Envelope
	ctx        context.Context
	end        context.CancelFunc
}

// Listeners counts the open streams of events.
func (r *Runtime) Listeners() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.listeners)
}

// BreakStreams ends the open streams of events, and nothing else.
func (r *Runtime) BreakStreams() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for listener := range r.listeners {
		listener.end()
	}
}

// listen registers a listener until its stream ends.
func (r *Runtime) listen(ctx context.Context, l *listener) func() {
	l.ctx, l.end = context.WithCancel(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listeners[l] = true
	return func() {
		l.end()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.listeners, l)
	}
}

// GetContainerEvents streams the events from now on.
func (r *Runtime) GetContainerEvents(
	_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse],
) error {
	r.mu.Lock()
	has := r.options.Events
	r.mu.Unlock()
	if !has {
		return status.Error(codes.Unimplemented, "method GetContainerEvents not implemented")
	}
	l := &listener{cri: make(chan *runtimeapi.ContainerEventResponse, unread)}
	defer r.listen(stream.Context(), l)()
	for {
		select {
		case event := <-l.cri:
			if err := stream.Send(event); err != nil {
				return err
			}
		case <-l.ctx.Done():
			return status.Error(codes.Unavailable, "the runtime is going away")
		}
	}
}

// announce sends an event about a sandbox, or a container in it, to all watchers.
// The caller holds mu.
func (r *Runtime) announce(s *sandbox, id string, kind runtimeapi.ContainerEventType) {
	if len(r.listeners) == 0 {
		return
	}
	event := &runtimeapi.ContainerEventResponse{
		ContainerId: id, ContainerEventType: kind, CreatedAt: r.options.Clock.Now().UnixNano(), PodSandboxStatus: s.status,
	}
	for l := range r.listeners {
		if l.cri == nil {
			continue
		}
		select {
		case l.cri <- event:
		default:
		}
	}
	switch kind {
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		r.publish("/tasks/start", id)
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
		r.publish("/tasks/exit", id, id)
		r.publish("/tasks/delete", id)
	case runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		r.publish("/containers/delete", id)
	}
}

// publish sends an event of containerd. process is the process that has ended, if
// the event is about one. The caller holds mu.
func (r *Runtime) publish(topic, id string, process ...string) {
	var event proto.Message
	switch topic {
	case "/tasks/start":
		event = &containerdevents.TaskStart{ContainerID: id}
	case "/tasks/exit":
		event = &containerdevents.TaskExit{ContainerID: id, ID: process[0]}
	case "/tasks/delete":
		event = &containerdevents.TaskDelete{ContainerID: id}
	case "/tasks/oom":
		event = &containerdevents.TaskOOM{ContainerID: id}
	case "/containers/delete":
		event = &containerdevents.ContainerDelete{ID: id}
	}
	var envelope *containerdtypes.Envelope
	for l := range r.listeners {
		if l.containerd == nil {
			continue
		}
		if envelope == nil {
			raw, err := anypb.New(event)
			if err != nil {
				panic(err)
			}
			envelope = &containerdtypes.Envelope{
				Timestamp: timestamppb.New(r.options.Clock.Now()), Namespace: "k8s.io", Topic: topic, Event: raw,
			}
		}
		select {
		case l.containerd <- envelope:
		default:
		}
	}
}

// containerdEvents is containerd's event service. It leaves the choice of
// events to the listener.
type containerdEvents struct {
	eventsapi.UnimplementedEventsServer
	runtime *Runtime
}

// Publish does nothing.
func (containerdEvents) Publish(context.Context, *eventsapi.PublishRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

// Subscribe streams the events from now on.
func (e containerdEvents) Subscribe(_ *eventsapi.SubscribeRequest, stream eventsapi.Events_SubscribeServer) error {
	l := &listener{containerd: make(chan *containerdtypes.Envelope, unread)}
	defer e.runtime.listen(stream.Context(), l)()
	for {
		select {
		case event := <-l.containerd:
			if err := stream.Send(event); err != nil {
				return err
			}
		case <-l.ctx.Done():
			return status.Error(codes.Unavailable, "the runtime is going away")
		}
	}
}
