package podspec

import corev1 "k8s.io/api/core/v1"

// IsTerminal reports whether the phase is terminal, Succeeded or Failed: no
// container of the pod runs or will be started again.
func IsTerminal(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}
