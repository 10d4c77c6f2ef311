package core

import (
	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/apis/podspec"
)

// podGracePeriod returns the grace period of a pod's deletion, in seconds;
// requested is the client's, nil if it names none. A deletion with a grace period
// only sets the deletion timestamp; the node's agent deletes the pod, with a
// grace period of zero, after its containers have terminated. A pod without a
// node has no agent that would do so, and a terminated pod has no containers to
// wait for: their grace period is zero. A negative period counts as one second.
func podGracePeriod(p *corev1.Pod, requested *int64) int64 {
	period := int64(0)
	switch {
	case p.Spec.NodeName == "" || podspec.IsTerminal(p.Status.Phase):
	case requested != nil:
		period = *requested
	case p.Spec.TerminationGracePeriodSeconds != nil:
		period = *p.Spec.TerminationGracePeriodSeconds
	}
	if period < 0 {
		return 1
	}
	return period
}
