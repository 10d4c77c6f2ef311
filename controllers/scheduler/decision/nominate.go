package decision

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Nominate reserves a place on a node for a pod that has none, as victims of its
// preemption are being deleted there. It replaces an earlier nomination; an empty node
// name removes it. Pods of lower priority do not get the place.
func (s *Snapshot) Nominate(pod *corev1.Pod, nodeName string) {
	if p := s.nominations[pod.UID]; p != nil {
		delete(s.nominations, pod.UID)
		p.node.nominated = slices.DeleteFunc(p.node.nominated, func(other *boundPod) bool { return other == p })
		s.forgetPod(p)
	}
	if nodeName == "" {
		return
	}
	p := s.newBoundPod(pod, nodeName)
	p.node.nominated = append(p.node.nominated, p)
	s.nominations[pod.UID] = p
}

// Nominated returns the node that a pod is nominated to, or "".
func (s *Snapshot) Nominated(uid types.UID) string {
	if p := s.nominations[uid]; p != nil {
		return p.node.name
	}
	return ""
}

// Preempted records whether a pod is being deleted by preemption, before a watch shows
// it.
func (s *Snapshot) Preempted(uid types.UID, preempted bool) {
	if p := s.pods[uid]; p != nil {
		p.preempted = preempted
	}
}

// isPreempted reports whether preemption deletes the pod.
func (p *boundPod) isPreempted() bool {
	if p.preempted {
		return true
	}
	return p.object.DeletionTimestamp != nil && slices.ContainsFunc(p.object.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonPreemptionByScheduler
	})
}

func (p *boundPod) priority() int32 { return priorityOf(p.object) }

func priorityOf(pod *corev1.Pod) int32 { return ptr.Deref(pod.Spec.Priority, 0) }
