package decision

import (
	corev1 "k8s.io/api/core/v1"
)

// DaemonPod reports on which nodes a daemon set runs its pod. It applies the rules of
// the filters NodeName, NodeAffinity and TaintToleration only: a daemon pod is also
// created on a node that has no room for it yet.
type DaemonPod struct {
	request *request
}

// NewDaemonPod returns the decision about a pod that the daemon set would create, with
// its tolerations.
func NewDaemonPod(pod *corev1.Pod) *DaemonPod { return &DaemonPod{newRequest(pod, &Profile{})} }

// Fits reports whether a node should run the pod, and whether a pod that runs there may
// stay: also with a taint of effect NoSchedule that it does not tolerate.
func (p *DaemonPod) Fits(object *corev1.Node) (run, stay bool) {
	n := &node{name: object.Name}
	n.set(object)
	for _, apply := range []func(*Snapshot, *request) rule{isNamedByPod, matchesNodeAffinity} {
		if !apply(nil, p.request).accepts(n) {
			return false, false
		}
	}
	if toleratesTaints(nil, p.request).accepts(n) {
		return true, true
	}
	for i := range n.taints {
		if n.taints[i].Effect == corev1.TaintEffectNoExecute && !tolerates(p.request.pod.Spec.Tolerations, &n.taints[i]) {
			return false, false
		}
	}
	return false, true
}

// accepts reports whether the rule accepts a node.
func (r rule) accepts(n *node) bool {
	return r.podReason == "" && (r.only == nil || r.only.Has(n.name)) && (r.check == nil || len(r.check(n, nil)) == 0)
}
