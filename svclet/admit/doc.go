// Package admit owns the decision whether this node admits a pod.
//
// It is pure. [Admit] runs an ordered list of named checks and returns the first
// [Refusal], in kubelet's words; a refused pod is shown as Failed. [Victims]
// selects the pods to preempt for a critical pod.
package admit
