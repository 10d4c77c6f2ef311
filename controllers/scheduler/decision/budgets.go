package decision

import (
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// budget is a disruption budget. Preemption violates it only if no other node can be
// freed.
type budget struct {
	selector labels.Selector
	allowed  int32
	// disrupted are the names of pods whose deletion it has allowed already.
	disrupted map[string]metav1.Time
}

// protects reports whether the deletion of a pod counts.
func (b *budget) protects(pod *corev1.Pod) bool {
	_, disrupted := b.disrupted[pod.Name]
	return !disrupted && b.selector.Matches(labels.Set(pod.Labels))
}

// SetBudget adds a disruption budget, or replaces it. One with an empty selector
// protects no pod from preemption, as in kube-scheduler.
func (s *Snapshot) SetBudget(object *policyv1.PodDisruptionBudget) {
	selector, err := metav1.LabelSelectorAsSelector(object.Spec.Selector)
	if err != nil || selector.Empty() {
		s.RemoveBudget(object.Namespace, object.Name)
		return
	}
	if s.budgets[object.Namespace] == nil {
		s.budgets[object.Namespace] = map[string]*budget{}
	}
	s.budgets[object.Namespace][object.Name] = &budget{selector, object.Status.DisruptionsAllowed, object.Status.DisruptedPods}
}

// RemoveBudget removes a disruption budget.
func (s *Snapshot) RemoveBudget(namespace, name string) {
	delete(s.budgets[namespace], name)
	if len(s.budgets[namespace]) == 0 {
		delete(s.budgets, namespace)
	}
}
