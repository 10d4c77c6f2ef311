package node

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// updatePodCIDRs configures the runtime with the address ranges of pods, when they
// have changed and the runtime answers. If that fails, the next sync tries again.
// known is the Node as the API has it, nil in standalone mode.
func (n *Node) updatePodCIDRs(ctx context.Context, known *corev1.Node) {
	cidrs := n.o.PodCIDRs
	if known != nil {
		cidrs = podCIDRs(known)
	}
	if n.o.SetPodCIDRs == nil || cidrs == "" || cidrs == n.podCIDRs || n.runtime.answered.IsZero() {
		return
	}
	limited, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	if err := n.o.SetPodCIDRs(limited, cidrs); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to configure pod CIDRs in the container runtime, will retry", "node", klog.KRef("", n.o.Name), "podCIDRs", cidrs)
		return
	}
	n.podCIDRs = cidrs
}

func podCIDRs(node *corev1.Node) string {
	if len(node.Spec.PodCIDRs) > 0 {
		return strings.Join(node.Spec.PodCIDRs, ",")
	}
	return node.Spec.PodCIDR
}
