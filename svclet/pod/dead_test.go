package pod

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestTerminatedContainersAreKeptAsTheOptionsSay(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for name, c := range map[string]struct {
		options  Options
		expended string
		want     []string // removed attempts, of 3, the newest, which runs, to 0
		wake     time.Time
	}{
		"by default one is kept":  {want: []string{"c1", "c0"}},
		"none":                    {options: Options{DeadContainers: ptr.To(0)}, want: []string{"c2", "c1", "c0"}},
		"all":                     {options: Options{DeadContainers: ptr.To(-1)}},
		"all but one of the node": {options: Options{DeadContainers: ptr.To(-1)}, expended: "c1", want: []string{"c1"}},
		"the younger ones for a time": {
			options: Options{DeadContainerTTL: 35 * time.Second}, want: []string{"c0"}, wake: now.Add(5 * time.Second),
		},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}}}
		m := New(p, c.options)
		observed := Observed{Sandboxes: []Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.1"}}}}
		for attempt := uint32(3); ; attempt-- {
			container := Container{ID: fmt.Sprintf("c%d", attempt), Name: "a", Attempt: attempt, SandboxID: "s", State: Exited, CreatedAt: now.Add(-time.Duration(4-attempt) * 10 * time.Second)}
			if attempt == 3 {
				container.State, container.SpecHash = Running, SpecHash(&p.Spec.Containers[0])
			}
			if observed.Containers = append(observed.Containers, container); attempt == 0 {
				break
			}
		}
		m.Observe(observed)
		m.Expend(map[string]bool{c.expended: true})
		m.isSetUp = true
		out := m.Next(now)
		var removed []string
		for _, op := range out.Start {
			if op.Kind == RemoveContainer {
				removed = append(removed, op.ID)
			}
		}
		if !slices.Equal(removed, c.want) || !c.wake.IsZero() && !out.Wake.Equal(c.wake) {
			t.Errorf("%s: removed %v, wakes at %v", name, removed, out.Wake)
		}
	}
}

func TestAnEndedPodLosesContainersThatAreExpendable(t *testing.T) {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "a"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodFailed},
	}
	m := New(p, Options{})
	observed := Observed{
		Sandboxes:  []Sandbox{{ID: "s"}},
		Containers: []Container{{ID: "c0", Name: "a", SandboxID: "s", State: Exited, ExitCode: 3, Reason: "Error"}},
	}
	removed := func(now time.Time) []string {
		var removed []string
		for _, op := range m.Next(now).Start {
			if op.Kind == RemoveContainer || op.Kind == RemoveSandbox {
				removed = append(removed, op.ID)
			}
		}
		return removed
	}
	now := time.Unix(1_800_000_000, 0)
	m.Observe(observed)
	if got := removed(now); len(got) > 0 {
		t.Errorf("removed %v before the disk fills up", got)
	}
	m.Expend(map[string]bool{"c0": true})
	if got := removed(now); !slices.Equal(got, []string{"c0"}) {
		t.Errorf("removed %v", got)
	}
	m.Done(Operation{Kind: RemoveContainer, ID: "c0", Name: "a"}, Result{})
	observed.Containers = nil
	m.Observe(observed)
	status := m.Next(now.Add(time.Second)).Status
	if s := status.ContainerStatuses; status.Phase != corev1.PodFailed || len(s) != 1 || s[0].State.Terminated == nil || s[0].State.Terminated.ExitCode != 3 {
		t.Errorf("afterwards the status is %+v", status)
	}
}
