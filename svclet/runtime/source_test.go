package runtime

import (
	"testing"

	containerdevents "github.com/containerd/containerd/api/events"
	containerdtypes "github.com/containerd/containerd/api/types"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestContainerdEventsAreTranslated(t *testing.T) {
	tests := []struct {
		name, topic string
		event       proto.Message
		want        notice
		ok          bool
	}{
		{"a start", "/tasks/start", &containerdevents.TaskStart{ContainerID: "c"}, notice{id: "c", expectation: started}, true},
		{"an end", "/tasks/delete", &containerdevents.TaskDelete{ContainerID: "c"}, notice{id: "c", expectation: ended}, true},
		{"an end by its id", "/tasks/delete", &containerdevents.TaskDelete{ContainerID: "c", ID: "c"}, notice{id: "c", expectation: ended}, true},
		{"want of memory", "/tasks/oom", &containerdevents.TaskOOM{ContainerID: "c"}, notice{id: "c"}, true},
		{"a removal", "/containers/delete", &containerdevents.ContainerDelete{ID: "c"}, notice{id: "c", expectation: removed}, true},
		{"the end of a command", "/tasks/delete", &containerdevents.TaskDelete{ContainerID: "c", ID: "exec"}, notice{}, false},
		{"an exit, which CRI does not show yet", "/tasks/exit", &containerdevents.TaskExit{ContainerID: "c", ID: "c"}, notice{}, false},
		{"anything else", "/images/create", &containerdevents.ImageCreate{Name: "i"}, notice{}, false},
		{"no event", "/tasks/start", nil, notice{}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			envelope := &containerdtypes.Envelope{Topic: test.topic, Namespace: containerdNamespace}
			if test.event != nil {
				var err error
				if envelope.Event, err = anypb.New(test.event); err != nil {
					t.Fatal(err)
				}
			}
			got, ok := noticeOfContainerd(envelope)
			if ok != test.ok || ok && got != test.want {
				t.Errorf("got %+v %v, want %+v %v", got, ok, test.want, test.ok)
			}
		})
	}
	if _, ok := noticeOfContainerd(&containerdtypes.Envelope{Topic: "/tasks/start", Event: &anypb.Any{Value: []byte{0xff}}}); ok {
		t.Error("an event that cannot be decoded is translated")
	}
}

func TestCRIContainerEventsAreTranslated(t *testing.T) {
	box := &runtimeapi.PodSandboxStatus{Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u"}}
	tests := []struct {
		event *runtimeapi.ContainerEventResponse
		want  notice
		ok    bool
	}{
		{&runtimeapi.ContainerEventResponse{ContainerId: "c", PodSandboxStatus: box}, notice{}, false},
		{&runtimeapi.ContainerEventResponse{ContainerId: "c", PodSandboxStatus: box, ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT},
			notice{id: "c", uid: "u", expectation: started}, true},
		{&runtimeapi.ContainerEventResponse{ContainerId: "c", ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT},
			notice{id: "c", expectation: ended}, true},
		{&runtimeapi.ContainerEventResponse{ContainerId: "c", ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT},
			notice{id: "c", expectation: removed}, true},
		{&runtimeapi.ContainerEventResponse{ContainerId: "c", PodSandboxStatus: box, ContainerEventType: 77}, notice{id: "c", uid: "u"}, true},
		{&runtimeapi.ContainerEventResponse{ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT}, notice{}, false},
		{nil, notice{}, false},
	}
	for _, test := range tests {
		got, ok := noticeOfCRI(test.event)
		if ok != test.ok || ok && got != test.want {
			t.Errorf("%v: got %+v %v, want %+v %v", test.event, got, ok, test.want, test.ok)
		}
	}
}
