package decide

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"svc.dev/svc/controllers/pods"
)

// observe writes the status of the pods as they are.
func (d *decision) observe() {
	d.Observed = appsv1.StatefulSetStatus{
		ObservedGeneration: d.Set.Generation,
		CurrentRevision:    d.Current.Name,
		UpdateRevision:     d.Update.Name,
		CollisionCount:     ptr.To(ptr.Deref(d.Collisions, 0)),
		Conditions:         d.Set.Status.Conditions,
	}
	s := &d.Observed
	for _, pod := range d.Pods {
		s.Replicas++
		if pod.Status.Phase == corev1.PodRunning && pods.IsReady(pod) {
			s.ReadyReplicas++
			available, in := pods.IsAvailable(pod, d.Set.Spec.MinReadySeconds, d.Now)
			if available {
				s.AvailableReplicas++
			}
			d.again(in)
		}
		if pod.DeletionTimestamp == nil {
			d.count(s, pod, 1)
		}
	}
}

// count counts a pod by its revision.
func (d *decision) count(s *appsv1.StatefulSetStatus, pod *corev1.Pod, sign int32) {
	if pod.Labels[revisionLabel] == d.Current.Name {
		s.CurrentReplicas += sign
	}
	if pod.Labels[revisionLabel] == d.Update.Name {
		s.UpdatedReplicas += sign
	}
}

// predict writes the status after the actions. A rollout is complete when there is
// nothing to do, and all pods are ready in the update revision. With the strategy OnDelete
// that counts from release 1.37 on.
func (d *decision) predict() {
	d.Status = *d.Observed.DeepCopy()
	s := &d.Status
	for _, action := range d.Actions {
		switch action.Verb {
		case Create:
			s.Replicas++
			d.count(s, action.Pod, 1)
		case Delete:
			d.count(s, action.Pod, -1)
		}
	}
	if len(d.Actions) == 0 && (d.Release >= 37 || d.Set.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType) &&
		s.Replicas == ptr.Deref(d.Set.Spec.Replicas, 1) && s.UpdatedReplicas == s.Replicas && s.ReadyReplicas == s.Replicas {
		s.CurrentRevision, s.CurrentReplicas = s.UpdateRevision, s.UpdatedReplicas
	}
}

// InUse returns the names of the revisions that the set or one of its pods has.
func InUse(s *State, status *appsv1.StatefulSetStatus) sets.Set[string] {
	names := sets.New(s.Update.Name, status.CurrentRevision, status.UpdateRevision)
	for _, pod := range s.Pods {
		names.Insert(pod.Labels[revisionLabel])
	}
	return names
}
