package podmanager

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/svclet/admit"
	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/runtime"
	"svc.dev/svc/svclet/source"
)

// oneDevice are allocations of a node with one device, which all pods ask for.
type oneDevice struct {
	mu     sync.Mutex
	holder types.UID
	asked  int
}

func (d *oneDevice) Admit(p *corev1.Pod) *admit.Refusal {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	if d.holder != "" && d.holder != p.UID {
		return &admit.Refusal{Reason: "UnexpectedAdmissionError", Message: "no device"}
	}
	d.holder = p.UID
	return nil
}

func (d *oneDevice) Retain(pods []*corev1.Pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.UID == d.holder }) {
		d.holder = ""
	}
}

func (d *oneDevice) Pods() []types.UID {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.holder == "" {
		return nil
	}
	return []types.UID{d.holder}
}

func (d *oneDevice) attempts() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked
}

// stops is an executor with a pod whose container runs until it is stopped, which takes until stop
// is closed.
type stops struct {
	*fakes
	stop chan struct{}

	mu      sync.Mutex
	stopped bool
	setUp   []types.UID // pods that have been set up
}

func (s *stops) Perform(ctx context.Context, p *corev1.Pod, o pod.Observed, op pod.Operation, pulled func(time.Duration)) pod.Result {
	switch op.Kind {
	case pod.StopContainer:
		select {
		case <-s.stop:
		case <-ctx.Done():
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stopped = true
		return pod.Result{}
	case pod.SetUp:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.setUp = append(s.setUp, p.UID)
	}
	return s.fakes.Perform(ctx, p, o, op, pulled)
}

func (s *stops) Observe(ctx context.Context, uid types.UID) (pod.Observed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return pod.Observed{}, nil
	}
	return s.fakes.Observe(ctx, uid)
}

func (s *stops) hasSetUp(uid types.UID) func() bool {
	return func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.Contains(s.setUp, uid)
	}
}

// deviceFixture is a fixture of a node with one device. The pod "old" has a running container.
type deviceFixture struct {
	*fixture
	devices *oneDevice
	runs    *stops
}

func newDeviceFixture(t *testing.T) *deviceFixture {
	r := newFixture(t)
	r.fakes.runs = "old"
	r.fakes.node.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("9")}
	d := &deviceFixture{fixture: r, devices: &oneDevice{}, runs: &stops{fakes: &fakes{known: true}, stop: make(chan struct{})}}
	d.runs.fakes.runs = "old"
	options := r.o
	options.Executor, options.Allocations = d.runs, d.devices
	r.Manager = New(options)
	return d
}

func wanting(uid types.UID) *corev1.Pod {
	p := testPod(string(uid), uid)
	p.Annotations[source.SourceAnnotation] = source.API
	p.Status = corev1.PodStatus{}
	return p
}

func (d *deviceFixture) set(pods ...*corev1.Pod) {
	d.updates <- source.Update{Source: source.API, Set: pods, Ready: true}
}

func (d *deviceFixture) remove(pods ...*corev1.Pod) {
	d.updates <- source.Update{Source: source.API, Removed: pods}
}

func (d *deviceFixture) phase(name string) func() corev1.PodPhase {
	return func() corev1.PodPhase {
		p, _ := d.Get("ns", name)
		if p == nil {
			return ""
		}
		return p.Status.Phase
	}
}

// force starts the pod "old", removes it, and adds another one, which does not get the device yet.
func (d *deviceFixture) force(t *testing.T) {
	d.run(t)
	d.set(wanting("old"))
	d.Eventually(d.runs.hasSetUp("old")).Should(gomega.BeTrue())
	d.remove(wanting("old"))
	d.set(wanting("new"))
	d.Eventually(d.devices.attempts).Should(gomega.BeNumerically(">=", 2))
	d.Expect(d.devices.Pods()).To(gomega.Equal([]types.UID{"old"}))
	d.Eventually(func() bool { return d.IsKnown("new") }).Should(gomega.BeTrue())
}

func TestAPodWaitsForTheDevicesOfPodsThatWereDeletedAtOnce(t *testing.T) {
	d := newDeviceFixture(t)
	d.force(t)
	attempts := d.devices.attempts()
	d.set() // nothing has changed
	handled := make(chan struct{})
	d.o.Queue.add(func(context.Context, *Manager) { close(handled) })
	d.Eventually(handled).Should(gomega.BeClosed())
	d.Expect(d.get("new").IsActive()).To(gomega.BeTrue())
	d.Expect(d.runs.hasSetUp("new")()).To(gomega.BeFalse())
	close(d.runs.stop)
	d.Eventually(d.runs.hasSetUp("new")).Should(gomega.BeTrue())
	d.Expect(d.devices.Pods()).To(gomega.Equal([]types.UID{"new"}))
	d.Expect(d.devices.attempts()).To(gomega.Equal(attempts + 1))
}

func TestAPodIsRejectedIfItsDevicesBelongToAPodThatStays(t *testing.T) {
	d := newDeviceFixture(t)
	d.run(t)
	d.set(wanting("old"))
	d.Eventually(d.runs.hasSetUp("old")).Should(gomega.BeTrue())
	d.set(wanting("new"))
	d.Eventually(d.phase("new")).Should(gomega.Equal(corev1.PodFailed))
}

func TestAPodIsRejectedIfAnotherHasTheDevicesThatItWaitedFor(t *testing.T) {
	d := newDeviceFixture(t)
	d.force(t)
	d.set(wanting("third"))
	d.Eventually(func() bool { return d.IsKnown("third") }).Should(gomega.BeTrue())
	close(d.runs.stop)
	d.Eventually(d.phase("third")).Should(gomega.Equal(corev1.PodFailed))
	d.Eventually(d.runs.hasSetUp("new")).Should(gomega.BeTrue(), "the first that waits")
	d.Expect(d.get("third").IsActive()).To(gomega.BeFalse())
	d.Expect(d.runs.hasSetUp("third")()).To(gomega.BeFalse())
}

func TestAPodThatWaitsForDevicesEndsWhenItIsDeleted(t *testing.T) {
	d := newDeviceFixture(t)
	d.force(t)
	deleted := wanting("new")
	deleted.DeletionTimestamp = &metav1.Time{Time: d.clock.Now()}
	d.set(deleted)
	d.Eventually(func() bool { return d.get("new").HasEnded() }).Should(gomega.BeTrue())
	d.remove(deleted)
	d.Eventually(func() bool { return d.IsKnown("new") }).Should(gomega.BeFalse())
	d.Expect(d.runs.hasSetUp("new")()).To(gomega.BeFalse())
	d.Expect(d.devices.Pods()).To(gomega.Equal([]types.UID{"old"}))
}

func TestARemovedPodWaitsForNoDevices(t *testing.T) {
	d := newDeviceFixture(t)
	d.force(t)
	d.remove(wanting("new"))
	d.Eventually(func() bool { return d.IsKnown("new") }).Should(gomega.BeFalse())
	d.Expect(d.runs.hasSetUp("new")()).To(gomega.BeFalse())
}

func TestAPodWaitsForTheDevicesOfPodsThatWereDeletedWhileTheAgentDidNotRun(t *testing.T) {
	d := newDeviceFixture(t)
	d.devices.holder = "old"
	observed, _ := d.runs.Observe(t.Context(), "old")
	d.Adopt([]runtime.Pod{{UID: "old", Namespace: "ns", Name: "old", Observed: observed}})
	d.run(t)
	d.set(wanting("new"))
	d.Eventually(func() bool { return d.IsKnown("new") && d.IsKnown("old") }).Should(gomega.BeTrue())
	d.Expect(d.devices.Pods()).To(gomega.Equal([]types.UID{"old"}))
	close(d.runs.stop)
	d.Eventually(d.runs.hasSetUp("new")).Should(gomega.BeTrue())
	d.Expect(d.devices.Pods()).To(gomega.Equal([]types.UID{"new"}))
}

func TestAPodGetsTheDevicesOfPodsThatEndedWhileTheAgentDidNotRun(t *testing.T) {
	d := newDeviceFixture(t)
	d.devices.holder = "gone"
	d.run(t)
	d.set(wanting("new"))
	d.Eventually(d.runs.hasSetUp("new")).Should(gomega.BeTrue())
}

func TestAPodIsRejectedOnceItsDevicesBelongToAPodThatASourceDelivers(t *testing.T) {
	d := newDeviceFixture(t)
	d.devices.holder = "old"
	observed, _ := d.runs.Observe(t.Context(), "old")
	d.Adopt([]runtime.Pod{{UID: "old", Namespace: "ns", Name: "old", Observed: observed}})
	d.run(t)
	d.updates <- source.Update{Source: source.File, Set: []*corev1.Pod{wanting("new")}}
	d.Eventually(func() bool { return d.IsKnown("new") }).Should(gomega.BeTrue())
	d.Expect(d.get("new").IsActive()).To(gomega.BeTrue())
	d.set(wanting("old"))
	d.Eventually(d.phase("new")).Should(gomega.Equal(corev1.PodFailed))
	d.Expect(d.devices.Pods()).To(gomega.Equal([]types.UID{"old"}))
}
