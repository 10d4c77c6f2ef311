package source

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"svc.dev/svc/apis/podspec"
)

// replace sets all the pods that the source wants.
func (s *Sources) replace(ctx context.Context, source string, pods []*corev1.Pod) {
	s.deliver.Lock()
	defer s.deliver.Unlock()
	s.mu.RLock()
	old := s.pods[source]
	s.mu.RUnlock()

	kept := make(map[types.UID]*corev1.Pod, len(pods))
	u := Update{Source: source}
	for _, pod := range s.withoutDuplicates(ctx, source, pods) {
		known := old[pod.UID]
		changed := s.adopt(source, pod, known)
		if changed {
			u.Set = append(u.Set, pod)
		} else if source != API {
			// The pod is unchanged.
			pod = known
		}
		kept[pod.UID] = pod
	}
	for uid, pod := range old {
		if kept[uid] == nil {
			u.Removed = append(u.Removed, pod)
		}
	}
	s.mu.Lock()
	s.pods[source] = kept
	first := !s.answered[source]
	s.answered[source] = true
	s.mu.Unlock()
	s.send(ctx, u, first)
}

// set adds or changes one pod of a source.
func (s *Sources) set(ctx context.Context, source string, pod *corev1.Pod) {
	s.deliver.Lock()
	defer s.deliver.Unlock()
	s.mu.RLock()
	known := s.pods[source][pod.UID]
	s.mu.RUnlock()
	changed := s.adopt(source, pod, known)
	s.mu.Lock()
	if s.pods[source] == nil {
		s.pods[source] = map[types.UID]*corev1.Pod{}
	}
	s.pods[source][pod.UID] = pod
	s.mu.Unlock()
	if changed {
		s.send(ctx, Update{Source: source, Set: []*corev1.Pod{pod}}, false)
	}
}

// remove removes one pod of a source.
func (s *Sources) remove(ctx context.Context, source string, uid types.UID) {
	s.deliver.Lock()
	defer s.deliver.Unlock()
	s.mu.Lock()
	pod, ok := s.pods[source][uid]
	delete(s.pods[source], uid)
	s.mu.Unlock()
	if ok {
		s.send(ctx, Update{Source: source, Removed: []*corev1.Pod{pod}}, false)
	}
}

// send sends an update unless it is empty.
func (s *Sources) send(ctx context.Context, u Update, first bool) {
	if !first && len(u.Set) == 0 && len(u.Removed) == 0 {
		return
	}
	if s.mirrors != nil && u.Source != API {
		s.mirrors.want(u.Set, u.Removed)
	}
	if u.Ready = s.Ready(); u.Ready && first && s.mirrors != nil {
		s.mirrors.complete()
	}
	select {
	case s.updates <- u:
	case <-ctx.Done():
	}
}

// adopt adds the node's annotations to the pod, and reports whether it differs
// from the known pod in a way that matters to the node.
func (s *Sources) adopt(source string, pod, known *corev1.Pod) bool {
	if pod == known {
		return false
	}
	var seen string
	if known != nil {
		seen = known.Annotations[SeenAnnotation]
	} else {
		seen = s.o.Clock.Now().Format(time.RFC3339Nano)
	}
	if pod.Annotations == nil {
		pod.Annotations = make(map[string]string, 2)
	}
	pod.Annotations[SourceAnnotation] = source
	pod.Annotations[SeenAnnotation] = seen
	if source == API && s.o.Observed != nil {
		s.o.Observed(pod)
	}
	return known == nil || differ(known, pod)
}

// differ reports whether something has changed that matters to a node.
func differ(a, b *corev1.Pod) bool {
	return !reflect.DeepEqual(a.Spec, b.Spec) ||
		!maps.Equal(a.Labels, b.Labels) ||
		!maps.Equal(a.Annotations, b.Annotations) ||
		!a.DeletionTimestamp.Equal(b.DeletionTimestamp) ||
		!reflect.DeepEqual(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds) ||
		podspec.IsTerminal(a.Status.Phase) != podspec.IsTerminal(b.Status.Phase) ||
		!maps.Equal(gates(a), gates(b))
}

// gates returns the readiness gate conditions of other writers.
func gates(p *corev1.Pod) map[corev1.PodConditionType]corev1.ConditionStatus {
	if len(p.Spec.ReadinessGates) == 0 {
		return nil
	}
	all := map[corev1.PodConditionType]corev1.ConditionStatus{}
	for _, c := range p.Status.Conditions {
		if slices.ContainsFunc(p.Spec.ReadinessGates, func(g corev1.PodReadinessGate) bool { return g.ConditionType == c.Type }) {
			all[c.Type] = c.Status
		}
	}
	return all
}

// withoutDuplicates keeps only the first of several pods with the same name.
func (s *Sources) withoutDuplicates(ctx context.Context, source string, pods []*corev1.Pod) []*corev1.Pod {
	seen := make(map[types.NamespacedName]bool, len(pods))
	kept := pods[:0:0]
	for _, pod := range pods {
		key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
		if seen[key] {
			klog.FromContext(ctx).Error(nil, "Ignoring a pod that has the same name as another pod of the source", "pod", klog.KObj(pod), "podUID", pod.UID, "source", source)
			if s.o.Recorder != nil {
				s.o.Recorder.Eventf(pod, corev1.EventTypeWarning, "FailedValidation",
					"Error validating pod %s_%s(%s) from %s due to duplicate pod name %q, ignoring", pod.Name, pod.Namespace, pod.UID, source, pod.Name)
			}
			continue
		}
		seen[key] = true
		kept = append(kept, pod)
	}
	return kept
}
