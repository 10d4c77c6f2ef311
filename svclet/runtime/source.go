package runtime

import (
	"context"
	"time"

	containerdevents "github.com/containerd/containerd/api/events"
	eventsapi "github.com/containerd/containerd/api/services/events/v1"
	containerdtypes "github.com/containerd/containerd/api/types"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
)

// Source is an event source of a watch.
type Source string

// The event sources.
const (
	// ContainerEvents is CRI's GetContainerEvents, which newer runtimes implement.
	ContainerEvents Source = "container events"
	// ContainerdEvents is containerd's event service, which every containerd has at
	// the CRI socket.
	ContainerdEvents Source = "containerd events"
	// Relist compares lists of all pods.
	Relist Source = "relist"
)

// settling is how long an event stream must last before the watch relies on it. A
// runtime without events fails sooner, and a runtime with events has registered
// the listener by then.
const settling = 500 * time.Millisecond

// firstReconnect is the pause before the first reconnect. It doubles up to
// PollPeriod.
const firstReconnect = 50 * time.Millisecond

// listen forwards the notices of the best available source until ctx is done.
func (c *Client) listen(ctx context.Context, notices chan<- notice) {
	pause := firstReconnect
	for ctx.Err() == nil {
		source, lasted, err := c.listenOnce(ctx, notices)
		switch {
		case source == Relist:
			// The runtime may have been replaced by the next attempt.
			pause = c.options.CheckPeriod
		case lasted:
			pause = firstReconnect
		default:
			pause = min(2*pause, c.options.PollPeriod)
		}
		klog.FromContext(ctx).V(2).Info("Failed to receive container runtime events, will retry", "source", source, "err", err)
		timer := c.options.Clock.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C():
		}
		timer.Stop()
		if source == Relist {
			pause = firstReconnect
		}
	}
}

// listenOnce forwards the notices of the first source that the runtime supports,
// until its stream breaks. lasted reports whether the stream was relied on.
func (c *Client) listenOnce(ctx context.Context, notices chan<- notice) (source Source, lasted bool, err error) {
	for _, source := range c.options.Sources {
		var stream func(ctx context.Context, emit func(notice)) error
		switch source {
		case ContainerEvents:
			stream = c.containerEvents
		case ContainerdEvents:
			stream = c.containerdEvents
		case Relist:
			return Relist, false, nil
		}
		lasted, err = c.receive(ctx, source, stream, notices)
		if lasted || !IsUnimplemented(err) {
			return source, lasted, err
		}
	}
	return Relist, false, err
}

// receive forwards the notices of one source until its stream breaks.
func (c *Client) receive(
	ctx context.Context, source Source, stream func(ctx context.Context, emit func(notice)) error, notices chan<- notice,
) (lasted bool, err error) {
	say := func(to chan<- notice, n notice) {
		select {
		case to <- n:
		case <-ctx.Done():
		}
	}
	events, done := make(chan notice), make(chan error, 1)
	go func() {
		done <- stream(ctx, func(n notice) { say(events, n) })
	}()
	settle := c.options.Clock.NewTimer(settling)
	defer settle.Stop()
	relied := func() {
		if !lasted {
			lasted = true
			klog.FromContext(ctx).V(2).Info("Receiving container runtime events", "source", source)
			say(notices, notice{connected: true})
		}
	}
	for {
		select {
		case <-settle.C():
			relied()
		case n := <-events:
			relied()
			say(notices, n)
		case err := <-done:
			if lasted {
				say(notices, notice{disconnected: true})
			}
			return lasted, err
		}
	}
}

// containerEvents receives the events of the source [ContainerEvents].
func (c *Client) containerEvents(ctx context.Context, emit func(notice)) error {
	events, done := make(chan *runtimeapi.ContainerEventResponse), make(chan error, 1)
	go func() {
		done <- c.runtime.GetContainerEvents(quiet(ctx), events, nil)
	}()
	// Receive until the end of the stream: otherwise the sender blocks.
	for {
		select {
		case event := <-events:
			if n, ok := noticeOfCRI(event); ok {
				emit(n)
			}
		case err := <-done:
			return err
		}
	}
}

// noticeOfCRI translates an event. It returns false for events without new
// information: a created container does nothing yet, and the creator knows of it.
func noticeOfCRI(event *runtimeapi.ContainerEventResponse) (notice, bool) {
	n := notice{id: event.GetContainerId(), uid: types.UID(event.GetPodSandboxStatus().GetMetadata().GetUid())}
	switch event.GetContainerEventType() {
	case runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT:
		return notice{}, false
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		n.expectation = started
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
		n.expectation = ended
	case runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		n.expectation = removed
	}
	return n, n.id != ""
}

// containerd's name as a runtime in CRI, the namespace of its CRI objects, and the
// header that selects a namespace.
const (
	containerdName      = "containerd"
	containerdNamespace = "k8s.io"
	namespaceHeader     = "containerd-namespace"
)

// containerdFilter selects the events that concern pods. It leaves out
// /tasks/exit: CRI shows the exit of a container only after the task is deleted,
// and each command run in a container (by a probe, for example) has such an event
// too.
const containerdFilter = `namespace==` + containerdNamespace +
	`,topic~="^/(tasks/(start|oom|delete)|containers/delete)$"`

// containerdEvents receives the events of the source [ContainerdEvents].
func (c *Client) containerdEvents(ctx context.Context, emit func(notice)) error {
	if c.name != containerdName {
		return status.Errorf(codes.Unimplemented, "%s has no event service of containerd", c.name)
	}
	conn, err := dial(c.options.RuntimeEndpoint)
	if err != nil {
		return err
	}
	defer func() {
		if err := conn.Close(); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to close the connection to containerd's event service")
		}
	}()
	ctx = metadata.AppendToOutgoingContext(ctx, namespaceHeader, containerdNamespace)
	stream, err := eventsapi.NewEventsClient(conn).Subscribe(ctx, &eventsapi.SubscribeRequest{Filters: []string{containerdFilter}})
	if err != nil {
		return err
	}
	for {
		envelope, err := stream.Recv()
		if err != nil {
			return err
		}
		if n, ok := noticeOfContainerd(envelope); ok {
			emit(n)
		}
	}
}

// noticeOfContainerd translates an event. It returns false for events that do not
// concern a pod.
func noticeOfContainerd(envelope *containerdtypes.Envelope) (notice, bool) {
	raw := envelope.GetEvent().GetValue()
	var n notice
	var err error
	switch envelope.GetTopic() {
	case "/tasks/start":
		event := &containerdevents.TaskStart{}
		err = proto.Unmarshal(raw, event)
		n = notice{id: event.GetContainerID(), expectation: started}
	case "/tasks/delete":
		event := &containerdevents.TaskDelete{}
		err = proto.Unmarshal(raw, event)
		if isTask(event) {
			n = notice{id: event.GetContainerID(), expectation: ended}
		}
	case "/tasks/oom":
		event := &containerdevents.TaskOOM{}
		err = proto.Unmarshal(raw, event)
		n = notice{id: event.GetContainerID()}
	case "/containers/delete":
		event := &containerdevents.ContainerDelete{}
		err = proto.Unmarshal(raw, event)
		n = notice{id: event.GetID(), expectation: removed}
	}
	return n, err == nil && n.id != ""
}

// isTask reports whether an event concerns the container's main process, and not a
// command run in it.
func isTask(event *containerdevents.TaskDelete) bool {
	return event.GetID() == "" || event.GetID() == event.GetContainerID()
}
