package pod

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// epoch is the initial time of every test's clock.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// environment is what a machine works with: a clock, a runtime, the operations in
// flight, and an API server with the last status.
type environment struct {
	t   *testing.T
	now time.Time
	pod *corev1.Pod
	m   *Machine

	observed Observed
	inFlight []Operation
	// begun are the operations that have had their effect, cancelled those that were
	// replaced.
	begun     []Operation
	cancelled []Operation
	sandboxes int
	// resized is the option of the next machine.
	resized bool
	// hosts are the addresses of the node. dual gives sandboxes an address of each IP family.
	hosts []string
	dual  bool
	out   Output
}

func newEnvironment(t *testing.T, spec corev1.PodSpec) *environment {
	w := &environment{t: t, now: epoch, hosts: []string{"192.0.2.1"}}
	if spec.TerminationGracePeriodSeconds == nil {
		grace := int64(30)
		spec.TerminationGracePeriodSeconds = &grace
	}
	if spec.RestartPolicy == "" {
		spec.RestartPolicy = corev1.RestartPolicyAlways
	}
	w.pod = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: types.UID("uid"), Generation: 1},
		Spec:       spec,
	}
	w.pod.Status.Phase = corev1.PodPending
	return w
}

// boot starts an agent: a new machine that observes the runtime.
func (w *environment) boot() {
	w.inFlight, w.begun, w.cancelled = nil, nil, nil
	w.m = New(w.pod.DeepCopy(), Options{Resized: w.resized})
	w.observe()
}

// orphan starts an agent that knows the pod from the runtime only.
func (w *environment) orphan() {
	w.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: w.pod.Name, Namespace: w.pod.Namespace, UID: w.pod.UID}}
	w.boot()
}

// observe passes the runtime's state to the machine.
func (w *environment) observe() {
	w.m.Observe(Observed{
		Sandboxes: slices.Clone(w.observed.Sandboxes), Containers: slices.Clone(w.observed.Containers),
	})
}

// next calls Next, and writes the status to the API server.
func (w *environment) next() Output {
	w.m.SetNode(Node{HostIPs: w.hosts})
	w.out = w.m.Next(w.now)
	for _, o := range w.out.Start {
		if i := slices.IndexFunc(w.inFlight, func(f Operation) bool { return f.Key() == o.Key() }); i >= 0 {
			w.cancelled = append(w.cancelled, w.inFlight[i])
			w.inFlight = slices.Delete(w.inFlight, i, i+1)
		}
		w.inFlight = append(w.inFlight, o)
	}
	w.pod.Status = *w.out.Status.DeepCopy()
	return w.out
}

// begin lets an operation have its effect before its end.
func (w *environment) begin(o Operation) {
	if !slices.Contains(w.begun, o) {
		w.begun = append(w.begun, o)
		w.apply(o)
	}
}

// update passes the object in the API server to the machine.
func (w *environment) update() { w.m.Update(w.pod.DeepCopy()) }

// finish ends an operation. It has its effect on the runtime unless it fails.
func (w *environment) finish(o Operation, r Result) {
	for _, c := range w.cancelled {
		w.m.Done(c, Result{Reason: "Cancelled", Cancelled: true})
	}
	w.cancelled = nil
	w.inFlight = slices.DeleteFunc(w.inFlight, func(f Operation) bool { return f == o })
	begun := slices.Contains(w.begun, o)
	w.begun = slices.DeleteFunc(w.begun, func(f Operation) bool { return f == o })
	if r.Reason == "" && !begun {
		w.apply(o)
	}
	if o.Kind == StartContainer && (r.Reason == "PostStartHookError" || r.Reason == "RunContainerError") {
		if !begun {
			w.apply(o)
		}
		if c := w.attempt(fmt.Sprintf("%s-%d", o.Name, o.Attempt)); c != nil && c.State != Exited {
			w.exit(c, 137, "Error")
		}
	}
	w.m.Done(o, r)
	w.observe()
}

func (w *environment) apply(o Operation) {
	switch o.Kind {
	case CreateSandbox:
		s := Sandbox{ID: fmt.Sprintf("sandbox-%d", w.sandboxes), Attempt: o.Attempt, Ready: true, CreatedAt: w.now}
		if !w.pod.Spec.HostNetwork {
			s.IPs = []string{fmt.Sprintf("10.0.0.%d", w.sandboxes+1)}
			if w.dual {
				s.IPs = append(s.IPs, fmt.Sprintf("fd00::%d", w.sandboxes+1))
			}
		}
		w.sandboxes++
		w.observed.Sandboxes = append([]Sandbox{s}, w.observed.Sandboxes...)
	case StopSandbox:
		if s := w.sandbox(o.ID); s != nil {
			s.Ready = false
			for i := range w.observed.Containers {
				if c := &w.observed.Containers[i]; c.SandboxID == o.ID && c.State != Exited {
					w.exit(c, 137, "Error")
				}
			}
		}
	case RemoveSandbox:
		w.observed.Sandboxes = slices.DeleteFunc(w.observed.Sandboxes, func(s Sandbox) bool { return s.ID == o.ID })
		w.observed.Containers = slices.DeleteFunc(w.observed.Containers, func(c Container) bool { return c.SandboxID == o.ID })
	case StartContainer:
		w.create(o)
	case StopContainer:
		if c := w.attempt(o.ID); c != nil && c.State != Exited {
			w.exit(c, 137, "Error")
		}
	case RemoveContainer:
		w.observed.Containers = slices.DeleteFunc(w.observed.Containers, func(c Container) bool { return c.ID == o.ID })
	}
}

// create creates a running container.
func (w *environment) create(o Operation) {
	for i := range w.m.containers {
		c := &w.m.containers[i]
		if c.spec.Name != o.Name {
			continue
		}
		w.observed.Containers = append([]Container{{
			ID: fmt.Sprintf("%s-%d", o.Name, o.Attempt), Runtime: "containerd", Name: o.Name, Attempt: o.Attempt,
			SandboxID: o.SandboxID, State: Running, CreatedAt: w.now, StartedAt: w.now,
			Image: c.spec.Image, ImageID: "sha256:" + c.spec.Image, SpecHash: SpecHash(c.spec),
			Grace: *w.pod.Spec.TerminationGracePeriodSeconds, CreatedWith: c.spec.Resources.DeepCopy(),
		}}, w.observed.Containers...)
	}
}

func (w *environment) exit(c *Container, code int32, reason string) {
	c.State, c.ExitCode, c.Reason, c.FinishedAt = Exited, code, reason, w.now
}

func (w *environment) sandbox(id string) *Sandbox {
	for i := range w.observed.Sandboxes {
		if w.observed.Sandboxes[i].ID == id {
			return &w.observed.Sandboxes[i]
		}
	}
	return nil
}

func (w *environment) attempt(id string) *Container {
	for i := range w.observed.Containers {
		if w.observed.Containers[i].ID == id {
			return &w.observed.Containers[i]
		}
	}
	return nil
}

// newest returns the newest attempt of a container.
func (w *environment) newest(name string) *Container {
	newest, _ := attempts(w.observed.Containers, name)
	if newest == nil {
		w.t.Fatalf("there is no container %s", name)
	}
	return newest
}
