package executor

import (
	"errors"
	"fmt"
	"testing"

	"github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/runtime/runtimetest"
)

// limited limits the memory of the pod's container.
func limited(memory string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
	}
}

func TestAMemoryLimitThatIsNotLoweredNeedsNoUsage(t *testing.T) {
	for name, test := range map[string]struct {
		memory  string
		refused bool
	}{
		"it stays": {"200Mi", false}, "it is raised": {"201Mi", false}, "it is lowered": {"199Mi", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t, limited("200Mi"))
			id := r.running()
			resize := pod.Operation{Kind: pod.ResizeContainer, ID: id, Name: "app"}
			r.succeed(resize) // the runtime reports the limit
			limited(test.memory)(r.pod)
			r.runtime.Rule("ContainerStats", runtimetest.Rule{Err: errors.New("no statistics")})
			r.Expect(r.perform(t.Context(), resize).Reason != "").To(gomega.Equal(test.refused))
		})
	}
}

func TestASetUpReportsThatTheCgroupKeepsItsMemoryLimit(t *testing.T) {
	r := newFixture(t)
	r.keepsMemory = true
	r.Expect(r.perform(t.Context(), pod.Operation{Kind: pod.SetUp})).To(gomega.Equal(pod.Result{KeptMemory: true}))
}

func TestAContainerIsNotLimitedBelowWhatItUses(t *testing.T) {
	for _, test := range []struct {
		name    string
		use     func(*runtimeapi.ContainerStats)
		message string
	}{
		{"less", func(s *runtimeapi.ContainerStats) { s.Memory.WorkingSetBytes.Value = 100 << 20 }, ""},
		{"more", func(s *runtimeapi.ContainerStats) { s.Memory.WorkingSetBytes.Value = 100<<20 + 1 }, "attempting to set the memory limit of container app (104857600) below current usage (104857601)"},
		{"unknown", func(s *runtimeapi.ContainerStats) { s.Memory.WorkingSetBytes = nil }, "the runtime has no memory usage of container app"},
		{"no statistics", func(s *runtimeapi.ContainerStats) { s.Memory = nil }, "the runtime has no memory usage of container app"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newFixture(t, limited("200Mi"))
			id := r.running()
			limited("100Mi")(r.pod)
			r.runtime.Rule("ContainerStats", runtimetest.Rule{Edit: func(m proto.Message) { test.use(m.(*runtimeapi.ContainerStatsResponse).GetStats()) }})
			want := pod.Result{}
			if test.message != "" {
				want = pod.Result{Reason: "ResizeError", Message: test.message}
			}
			r.Expect(r.perform(t.Context(), pod.Operation{Kind: pod.ResizeContainer, ID: id, Name: "app"})).To(gomega.Equal(want))
			r.Expect(r.runtime.Calls("UpdateContainerResources") > 0).To(gomega.Equal(test.message == ""))
		})
	}
}

// announced records what the runtime is told of the pod's resources, and answers it.
func (r *fixture) announced(answer error) {
	r.runtime.RemoveRules("UpdatePodSandboxResources")
	r.runtime.Rule("UpdatePodSandboxResources", runtimetest.Rule{Err: answer, Match: func(m proto.Message) bool {
		told := m.(*runtimeapi.UpdatePodSandboxResourcesRequest)
		r.record(func() {
			r.resizes = append(r.resizes, fmt.Sprintf("%s: memory %d besides %d of overhead, shares %d", told.GetPodSandboxId(),
				told.GetResources().GetMemoryLimitInBytes(), told.GetOverhead().GetMemoryLimitInBytes(), told.GetResources().GetCpuShares()))
		})
		return true
	}})
}

// newResizeFixture is a fixture of a running pod that was resized from 200 MiB to 100 MiB, and
// from one CPU to two.
func newResizeFixture(t *testing.T) (r *fixture, sandbox string) {
	resized := func(memory, cpu string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Overhead = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")}
			limited(memory)(p)
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		}
	}
	r = newFixture(t, resized("200Mi", "1"))
	r.running()
	r.pod = r.pod.DeepCopy()
	resized("100Mi", "2")(r.pod)
	return r, r.observed().Sandboxes[0].ID
}

func TestAResizeIsAnnouncedToTheRuntimeBeforeTheCgroupChanges(t *testing.T) {
	for name, answer := range map[string]error{
		"": nil, "a runtime without the request": status.Error(codes.Unimplemented, "unknown method"),
		"containerd 2.2": status.Error(codes.Unknown, "not implemented yet"),
	} {
		t.Run(name, func(t *testing.T) {
			r, sandbox := newResizeFixture(t)
			r.announced(answer)
			r.succeed(pod.Operation{Kind: pod.ResizePod, Grow: true})
			r.succeed(pod.Operation{Kind: pod.ResizePod})
			r.Expect(r.resizes).To(gomega.Equal([]string{
				sandbox + ": memory 209715200 besides 1048576 of overhead, shares 2048", "cgroup grows",
				sandbox + ": memory 104857600 besides 1048576 of overhead, shares 2048", "cgroup",
			}))
		})
	}
}

func TestAResizeThatTheRuntimeRejectsChangesNothing(t *testing.T) {
	r, _ := newResizeFixture(t)
	r.announced(errors.New("no such memory"))
	result := r.perform(t.Context(), pod.Operation{Kind: pod.ResizePod, Grow: true})
	r.Expect(result.Reason).To(gomega.Equal("ResizeError"))
	r.Expect(result.Message).To(gomega.ContainSubstring("no such memory"))
	r.Expect(r.resizes).To(gomega.HaveLen(1))
}

func TestAResizeThatFailsIsTakenBackInTheRuntime(t *testing.T) {
	r, sandbox := newResizeFixture(t)
	r.announced(nil)
	r.resizeCgroup = errors.New("busy")
	for _, test := range []struct {
		grow bool
		want []string
	}{
		{true, []string{"memory 209715200 besides 1048576 of overhead, shares 2048", "cgroup grows", "memory 209715200 besides 1048576 of overhead, shares 1024"}},
		{false, []string{"memory 104857600 besides 1048576 of overhead, shares 2048", "cgroup", "memory 209715200 besides 1048576 of overhead, shares 2048"}},
	} {
		r.resizes = nil
		result := r.perform(t.Context(), pod.Operation{Kind: pod.ResizePod, Grow: test.grow})
		r.Expect(result).To(gomega.Equal(pod.Result{Reason: "ResizeError", Message: "busy"}))
		test.want[0], test.want[2] = sandbox+": "+test.want[0], sandbox+": "+test.want[2]
		r.Expect(r.resizes).To(gomega.Equal(test.want))
	}
}

func TestALimitBelowWhatThePodUsesIsNotAnnounced(t *testing.T) {
	r, _ := newResizeFixture(t)
	r.announced(nil)
	r.memory = errors.New("below current usage")
	r.Expect(r.perform(t.Context(), pod.Operation{Kind: pod.ResizePod})).To(gomega.Equal(pod.Result{Reason: "ResizeError", Message: "below current usage"}))
	r.Expect(r.resizes).To(gomega.BeEmpty())
	r.succeed(pod.Operation{Kind: pod.ResizePod, Grow: true}) // which leaves it as it is
}
