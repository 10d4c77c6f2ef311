package runtime_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/runtime"
	"svc.dev/svc/svclet/runtime/runtimetest"
)

func TestAnObservationHasEverythingTheRuntimeReports(t *testing.T) {
	w := start(t, runtimetest.Options{Name: "crio"}, runtime.Options{})
	first := w.sandbox("a", 0)
	w.BreakSandbox(first)
	second := w.sandbox("a", 1)
	old := w.run("a", "app", 0)
	w.End(old, runtimetest.End{Code: 3, Message: "died"})
	w.create("a", "init", 0)
	current := w.run("a", "app", 1, func(config *runtimeapi.ContainerConfig) {
		config.Linux = &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{
			CpuShares: 102, CpuPeriod: 100000, CpuQuota: 50000, MemoryLimitInBytes: 64 << 20,
		}}
		config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: "/x", Readonly: true, RecursiveReadOnly: true}}
	})
	w.Change(current, func(status *runtimeapi.ContainerStatus) {
		status.StopSignal = runtimeapi.Signal_SIGNAL_SIGUSR1
		status.User = &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{Uid: 1, Gid: 2, SupplementalGroups: []int64{2, 3}}}
	})

	observed := w.inspect("a")
	if len(observed.Sandboxes) != 2 || observed.Sandboxes[0].ID != second || !observed.Sandboxes[0].Ready || observed.Sandboxes[0].Attempt != 1 ||
		len(observed.Sandboxes[0].IPs) != 1 || observed.Sandboxes[1].Ready || observed.Sandboxes[1].IPs != nil {
		t.Errorf("sandboxes %+v", observed.Sandboxes)
	}
	if len(observed.Containers) != 3 || observed.Containers[1].State != pod.Created || !observed.Containers[1].StartedAt.IsZero() {
		t.Fatalf("containers %+v", observed.Containers)
	}
	running, ended := observed.Containers[0], observed.Containers[2]
	if ended.ID != old || ended.State != pod.Exited || ended.ExitCode != 3 || ended.Reason != "Error" || ended.Message != "died" ||
		ended.FinishedAt.Before(ended.StartedAt) || ended.StartedAt.Before(ended.CreatedAt) {
		t.Errorf("the container that has ended is %+v", ended)
	}
	enabled := corev1.RecursiveReadOnlyEnabled
	want := pod.Container{
		ID: current, Runtime: "crio", Name: "app", Attempt: 1, SandboxID: second, State: pod.Running,
		CreatedAt: running.CreatedAt, StartedAt: running.StartedAt, Image: image, ImageID: running.ImageID, SpecHash: 0xabc, Grace: 7,
		User:       &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: 1, GID: 2, SupplementalGroups: []int64{2, 3}}},
		Mounts:     []corev1.VolumeMountStatus{{MountPath: "/data", ReadOnly: true, RecursiveReadOnly: &enabled}},
		StopSignal: new(corev1.SIGUSR1),
		Resources: &corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
		},
	}
	if diff := cmp.Diff(want, running); diff != "" {
		t.Error(diff)
	}
}

func TestAPodThatIsGoneIsObservedAsEmpty(t *testing.T) {
	w := start(t, runtimetest.Options{}, runtime.Options{})
	if observed := w.inspect("a"); !nothing(observed) {
		t.Errorf("observed %+v", observed)
	}
	id := w.sandbox("a", 0)
	if observed := w.inspect("a"); nothing(observed) {
		t.Error("the sandbox is not seen")
	}
	if err := w.client.RemoveSandbox(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if observed := w.inspect("a"); !nothing(observed) {
		t.Errorf("observed %+v", observed)
	}
}

func TestHostNetworkAndInvalidAddressesAreLeftOut(t *testing.T) {
	network := func(edit func(*runtimeapi.PodSandboxStatus)) runtimetest.Rule {
		return runtimetest.Rule{Edit: func(answer proto.Message) { edit(answer.(*runtimeapi.PodSandboxStatusResponse).Status) }}
	}
	tests := []struct {
		name string
		rule runtimetest.Rule
		want []string
	}{
		{"both families, the primary first", network(func(s *runtimeapi.PodSandboxStatus) {
			s.Network = &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1", AdditionalIps: []*runtimeapi.PodIP{{Ip: "fd00::1"}}}
		}), []string{"10.0.0.1", "fd00::1"}},
		{"no address", network(func(s *runtimeapi.PodSandboxStatus) {
			s.Network = &runtimeapi.PodSandboxNetworkStatus{Ip: "here"}
		}), nil},
		{"one wrong among them", network(func(s *runtimeapi.PodSandboxStatus) {
			s.Network = &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1", AdditionalIps: []*runtimeapi.PodIP{{}}}
		}), nil},
		{"no network", network(func(s *runtimeapi.PodSandboxStatus) { s.Network = nil }), nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := start(t, runtimetest.Options{}, runtime.Options{})
			w.sandbox("a", 0)
			w.Rule("PodSandboxStatus", test.rule)
			if diff := cmp.Diff(test.want, w.inspect("a").Sandboxes[0].IPs); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestStatusesAreRequestedOnlyForChangedContainers(t *testing.T) {
	w := start(t, runtimetest.Options{}, runtime.Options{})
	w.sandbox("a", 0)
	one, two := w.run("a", "one", 0), w.run("a", "two", 0)
	w.inspect("a")
	boxes, containers := w.Calls("PodSandboxStatus"), w.Calls("ContainerStatus")
	w.inspect("a")
	if w.Calls("PodSandboxStatus") != boxes || w.Calls("ContainerStatus") != containers {
		t.Error("statuses are requested although nothing has changed")
	}
	w.End(one, runtimetest.End{})
	w.inspect("a")
	if got := w.Calls("ContainerStatus") - containers; got != 1 {
		t.Errorf("%d statuses are requested after one container has ended", got)
	}
	resources := &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1 << 20}}
	if err := w.client.UpdateResources(t.Context(), two, resources); err != nil {
		t.Fatal(err)
	}
	for _, container := range w.inspect("a").Containers {
		if container.ID == two && container.Resources.Limits.Memory().Value() != 1<<20 {
			t.Errorf("after their change the resources are %+v", container.Resources)
		}
	}
}

func TestContainersOfOthersAreIgnored(t *testing.T) {
	w := start(t, runtimetest.Options{}, runtime.Options{})
	config := sandboxConfig(podOf("a"), 0)
	config.Labels = map[string]string{"someone": "else"}
	if _, err := w.client.RunSandbox(t.Context(), config, ""); err != nil {
		t.Fatal(err)
	}
	if pods, err := w.client.Pods(t.Context()); err != nil || len(pods) != 0 {
		t.Errorf("Pods: %+v %v", pods, err)
	}
}

func TestAnInvalidAnswerAboutOnePodDoesNotAffectOthers(t *testing.T) {
	container := func(edit func(*runtimeapi.ContainerStatusResponse)) func(proto.Message) {
		return func(answer proto.Message) { edit(answer.(*runtimeapi.ContainerStatusResponse)) }
	}
	tests := []struct {
		name string
		edit func(proto.Message)
		err  error
		want string
	}{
		{"no status", container(func(a *runtimeapi.ContainerStatusResponse) { a.Status = nil }), nil, "without a status"},
		{"another's status", container(func(a *runtimeapi.ContainerStatusResponse) { a.Status.Id = "other" }), nil, "status of other"},
		{"no image", container(func(a *runtimeapi.ContainerStatusResponse) { a.Status.Image = nil }), nil, "Image is not set"},
		{"no metadata", container(func(a *runtimeapi.ContainerStatusResponse) { a.Status.Metadata = nil }), nil, "Metadata is not set"},
		{"an error", nil, status.Error(codes.Internal, "corrupt state"), "corrupt state"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := start(t, runtimetest.Options{}, runtime.Options{})
			w.sandbox("a", 0)
			w.sandbox("b", 0)
			bad := w.run("a", "app", 0)
			w.run("b", "app", 0)
			w.Rule("ContainerStatus", runtimetest.Rule{Edit: test.edit, Err: test.err, Match: func(request proto.Message) bool {
				return request.(*runtimeapi.ContainerStatusRequest).ContainerId == bad
			}})
			pods, err := w.client.Pods(t.Context())
			if err != nil || len(pods) != 2 {
				t.Fatalf("Pods: %v %v", pods, err)
			}
			if err := pods[0].Err; err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), bad) || !nothing(pods[0].Observed) {
				t.Errorf("the pod is reported as %+v with the error %v", pods[0].Observed, err)
			}
			if pods[1].Err != nil || !in("app", pod.Running)(pods[1].Observed) {
				t.Errorf("the other pod is reported as %+v with the error %v", pods[1].Observed, pods[1].Err)
			}
		})
	}
}

func TestAnUnsupportedStateIsUnknown(t *testing.T) {
	w := start(t, runtimetest.Options{}, runtime.Options{})
	w.sandbox("a", 0)
	w.Change(w.run("a", "app", 0), func(status *runtimeapi.ContainerStatus) { status.State = 99 })
	if observed := w.inspect("a"); !in("app", pod.Unknown)(observed) {
		t.Errorf("observed %+v", observed)
	}
}

func TestContainersRemovedBetweenListAndStatusAreLeftOut(t *testing.T) {
	w := start(t, runtimetest.Options{}, runtime.Options{})
	w.sandbox("a", 0)
	w.run("a", "app", 0)
	missing := runtimetest.Rule{Err: status.Error(codes.NotFound, "gone"), Times: 1}
	w.Rule("PodSandboxStatus", missing)
	w.Rule("ContainerStatus", missing)
	if observed := w.inspect("a"); !nothing(observed) {
		t.Errorf("observed %+v", observed)
	}
	if observed := w.inspect("a"); !in("app", pod.Running)(observed) || len(observed.Sandboxes) != 1 {
		t.Errorf("observed %+v", observed)
	}
}

func TestListsWithoutLabelsOrIDsDoNotPanic(t *testing.T) {
	w := start(t, runtimetest.Options{}, runtime.Options{})
	w.sandbox("a", 0)
	w.run("a", "app", 0)
	w.Rule("ListContainers", runtimetest.Rule{Edit: func(answer proto.Message) {
		list := answer.(*runtimeapi.ListContainersResponse)
		list.Containers = append(list.Containers, &runtimeapi.Container{}, &runtimeapi.Container{Labels: list.Containers[0].Labels})
	}})
	if observed := w.inspect("a"); len(observed.Containers) != 1 {
		t.Errorf("observed %+v", observed)
	}
}

func TestInspectionsOfOnePodNeverOverlap(t *testing.T) {
	w := start(t, runtimetest.Options{}, runtime.Options{})
	w.sandbox("a", 0)
	id := w.run("a", "app", 0)
	w.sandbox("b", 0)
	gate := make(chan struct{})
	w.Rule("ContainerStatus", runtimetest.Rule{Gate: gate, Times: 1})
	before := w.Calls("ContainerStatus")
	first, second := make(chan pod.Observed), make(chan pod.Observed)
	go func() { first <- w.inspect("a") }()
	eventually(t, "the first inspection is in flight", func() bool { return w.Calls("ContainerStatus") > before })
	lists := w.Calls("ListPodSandbox")
	w.End(id, runtimetest.End{})
	go func() { second <- w.inspect("a") }()
	// Another pod is not delayed.
	w.inspect("b")
	if got := w.Calls("ListPodSandbox") - lists; got != 1 {
		t.Errorf("%d inspections have begun beside the first one, want only that of the other pod", got)
	}
	close(gate)
	older, newer := <-first, <-second
	if older.Sequence >= newer.Sequence || !in("app", pod.Exited)(newer) {
		t.Errorf("observation %d came before %d: %+v", older.Sequence, newer.Sequence, newer)
	}
}

func TestPodsReturnsEachPodOnce(t *testing.T) {
	w := start(t, runtimetest.Options{}, runtime.Options{})
	for _, uid := range []string{"c", "a", "b"} {
		w.sandbox(uid, 0)
		w.run(uid, "app", 0)
	}
	pods, err := w.client.Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []types.UID
	for _, p := range pods {
		names = append(names, p.UID)
		if p.Name != "pod-"+string(p.UID) || p.Namespace != "default" || len(p.Labels) != 1 || p.Labels["app"] != string(p.UID) || p.Err != nil || p.Observed.Sequence == 0 {
			t.Errorf("pod %+v", p)
		}
	}
	if diff := cmp.Diff([]types.UID{"a", "b", "c"}, names); diff != "" {
		t.Error(diff)
	}
	if got := w.Calls("ListContainers"); got != 1 {
		t.Errorf("containers were listed %d times", got)
	}
}

func TestAHangingContainerDoesNotKeepOtherPodsFromBeingListed(t *testing.T) {
	t.Parallel() // it lasts until an inspection times out
	w := start(t, runtimetest.Options{}, runtime.Options{})
	w.sandbox("a", 0)
	hangs := w.run("a", "app", 0)
	w.sandbox("b", 0)
	w.run("b", "app", 0)
	w.Rule("ContainerStatus", runtimetest.Rule{Hang: true, Match: func(request proto.Message) bool {
		return request.(*runtimeapi.ContainerStatusRequest).ContainerId == hangs
	}})
	pods, err := w.client.Pods(t.Context())
	if err != nil || len(pods) != 2 {
		t.Fatalf("found %+v, %v", pods, err)
	}
	if pods[0].UID != "a" || !runtime.IsTimeout(pods[0].Err) {
		t.Errorf("the pod that hangs is found as %+v", pods[0])
	}
	if pods[1].Err != nil || !in("app", pod.Running)(pods[1].Observed) {
		t.Errorf("the other one is found as %+v", pods[1])
	}
}
