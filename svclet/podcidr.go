package svclet

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// tellPodCIDR tells the runtime which addresses pods get, when that has changed:
// those that the cluster gives the node or, without an API server, those of
// --pod-cidr. A containerd of the agent's own has them in its configuration. It
// is called from one goroutine.
func (a *Agent) tellPodCIDR(ctx context.Context) {
	if a.Containerd != nil {
		return
	}
	cidrs := a.Configuration.PodCIDR
	if a.api != nil {
		cidrs = podCIDRs(a.nodeObject())
	}
	if cidrs == "" || cidrs == a.podCIDR {
		return
	}
	if err := a.runtime.SetPodCIDRs(ctx, cidrs); err != nil {
		klog.FromContext(ctx).Error(err, "The runtime does not take the addresses of pods", "podCIDR", cidrs)
		return
	}
	a.podCIDR = cidrs
}

func podCIDRs(node *corev1.Node) string {
	if len(node.Spec.PodCIDRs) > 0 {
		return strings.Join(node.Spec.PodCIDRs, ",")
	}
	return node.Spec.PodCIDR
}
