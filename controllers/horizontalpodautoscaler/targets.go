package horizontalpodautoscaler

import (
	"slices"
	"sync"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/controllers/horizontalpodautoscaler/decide"
)

// targets is what the controller remembers of autoscalers: which pods they scale, to
// detect two that scale the same, and their decisions.
type targets struct {
	mu  sync.Mutex
	all map[types.NamespacedName]*remembered
}

type remembered struct {
	uid      types.UID
	memory   decide.Memory
	selector labels.Selector
}

func newTargets() *targets { return &targets{all: map[types.NamespacedName]*remembered{}} }

// memory returns the memory of an autoscaler's decisions, which only its syncs use.
func (t *targets) memory(hpa *autoscalingv2.HorizontalPodAutoscaler) *decide.Memory {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.all[key(hpa)]
	if of == nil || of.uid != hpa.UID {
		of = &remembered{uid: hpa.UID}
		t.all[key(hpa)] = of
	}
	return &of.memory
}

// selected records which pods an autoscaler scales, and returns the names of all that
// scale one of them, if there are others.
func (t *targets) selected(hpa *autoscalingv2.HorizontalPodAutoscaler, selector labels.Selector, pods []*corev1.Pod) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all[key(hpa)].selector = selector
	var names []string
	for other, of := range t.all {
		if other.Namespace == hpa.Namespace && other.Name != hpa.Name && of.selector != nil && matches(of.selector, pods) {
			names = append(names, other.String())
		}
	}
	if len(names) == 0 {
		return nil
	}
	names = append(names, key(hpa).String())
	slices.Sort(names)
	return names
}

// forget forgets an autoscaler, and reports whether its namespace has no other one.
func (t *targets) forget(name types.NamespacedName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, name)
	for other := range t.all {
		if other.Namespace == name.Namespace {
			return false
		}
	}
	return true
}
