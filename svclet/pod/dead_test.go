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
