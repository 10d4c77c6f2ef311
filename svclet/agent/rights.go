package agent

import (
	"context"

	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/host"
	"svc.dev/svc/svclet/podnetwork/plan"
)

const noNetworkRights = "The capability CAP_NET_ADMIN is missing: services have no proxy, network policies are not enforced, and there is no network of pods"

// checkNetworkRights finds out whether this process has CAP_NET_ADMIN. Without it, it turns off
// network policies and the pod network, and logs that unless the agent has a containerd of its own, whose warnings report it.
func (c *common) checkNetworkRights(ctx context.Context) error {
	if !c.ServiceProxy && !c.NetworkPolicy && c.PodNetwork == plan.None {
		return nil
	}
	may, err := host.MayAdministerNetwork()
	if err != nil || may {
		return err
	}
	if c.Containerd == nil {
		klog.FromContext(ctx).Error(nil, noNetworkRights)
	}
	c.networkDenied, c.NetworkPolicy, c.PodNetwork = true, false, plan.None
	return nil
}
