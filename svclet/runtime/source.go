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

// Source is where a watch learns that something has changed.
type Source string

// The sources.
const (
	// ContainerEvents is CRI's GetContainerEvents, which newer runtimes have.
	ContainerEvents Source = "container events"
	// ContainerdEvents is containerd's own event service, which every
	// containerd has at the same socket.
	ContainerdEvents Source = "containerd events"
	// Relist is comparing lists of all pods.
	Relist Source = "relist"
)

// settling is how long a stream of events must last before it is relied upon.
// A runtime that has no events says so sooner, and one that has them has
// registered the listener by then.
const settling = 500 * time.Millisecond

// firstReconnect is the pause before the first attempt to listen again. It
// doubles up to PollPeriod.
const firstReconnect = 50 * time.Millisecond

// listen passes on what the best source says, until the context ends.
func (c *Client) listen(ctx context.Context, notices chan<- notice) {
	pause := firstReconnect
	for ctx.Err() == nil {
		source, lasted, err := c.listenOnce(ctx, notices)
		switch {
		case source == Relist:
			// The runtime may have become another one when it is next asked.
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

// listenOnce passes on what the first source says that the runtime has, until
// it breaks. lasted is whether it has been relied upon.
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
		lasted, err = c.follow(ctx, source, stream, notices)
		if lasted || !IsUnimplemented(err) {
			return source, lasted, err
		}
	}
	return Relist, false, err
}

// follow passes on what one source says until it breaks.
func (c *Client) follow(
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

// containerEvents is the source of that name.
func (c *Client) containerEvents(ctx context.Context, emit func(notice)) error {
	events, done := make(chan *runtimeapi.ContainerEventResponse), make(chan error, 1)
	go func() {
		done <- c.runtime.GetContainerEvents(quiet(ctx), events, nil)
	}()
	// Whatever comes is received until the end: the sender waits for that.
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

// noticeOfCRI reads an event. It is false for those that say nothing new: a
// container that has only been created does nothing yet, and its maker knows.
func noticeOfCRI(event *runtimeapi.ContainerEventResponse) (notice, bool) {
	n := notice{id: event.GetContainerId(), uid: types.UID(event.GetPodSandboxStatus().GetMetadata().GetUid())}
	switch event.GetContainerEventType() {
	case runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT:
		return notice{}, false
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		n.want = started
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
		n.want = ended
	case runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		n.want = removed
	}
	return n, n.id != ""
}

// containerd's names: its runtime name in CRI, the namespace of what CRI makes
// in it, and the header by which requests name a namespace.
const (
	containerdName      = "containerd"
	containerdNamespace = "k8s.io"
	namespaceHeader     = "containerd-namespace"
)

// containerdFilter selects the events that tell something about a pod. It
// leaves out /tasks/exit: CRI shows the end of a container only once it has
// deleted the task, and the end of each command that is run in a container (by
// a probe, say) comes by that name too.
const containerdFilter = `namespace==` + containerdNamespace +
	`,topic~="^/(tasks/(start|oom|delete)|containers/delete)$"`

// containerdEvents is the source of that name.
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

// noticeOfContainerd reads an event. It is false for those that say nothing
// about a pod.
func noticeOfContainerd(envelope *containerdtypes.Envelope) (notice, bool) {
	raw := envelope.GetEvent().GetValue()
	var n notice
	var err error
	switch envelope.GetTopic() {
	case "/tasks/start":
		event := &containerdevents.TaskStart{}
		err = proto.Unmarshal(raw, event)
		n = notice{id: event.GetContainerID(), want: started}
	case "/tasks/delete":
		event := &containerdevents.TaskDelete{}
		err = proto.Unmarshal(raw, event)
		if isTask(event) {
			n = notice{id: event.GetContainerID(), want: ended}
		}
	case "/tasks/oom":
		event := &containerdevents.TaskOOM{}
		err = proto.Unmarshal(raw, event)
		n = notice{id: event.GetContainerID()}
	case "/containers/delete":
		event := &containerdevents.ContainerDelete{}
		err = proto.Unmarshal(raw, event)
		n = notice{id: event.GetID(), want: removed}
	}
	return n, err == nil && n.id != ""
}

// isTask says whether an event is about the container's own process, and not
// about a command that was run beside it.
func isTask(event *containerdevents.TaskDelete) bool {
	return event.GetID() == "" || event.GetID() == event.GetContainerID()
}
