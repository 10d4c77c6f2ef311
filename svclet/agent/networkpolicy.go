package agent

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/executor"
	"svc.dev/svc/svclet/networkpolicy"
)

// networkPolicies makes what enforces network policies; it is nil without. On a machine
// that cannot filter connections, the agent works without. An agent that is not to filter
// them removes the rules of one that did: nothing would update them.
func networkPolicies(ctx context.Context, base common, conn connections) (*networkpolicy.Enforcer, tasks) {
	logger := klog.FromContext(ctx)
	bridge := ""
	if base.Containerd != nil {
		bridge = base.Containerd.Bridge()
	}
	switch {
	case base.NetworkPolicy && conn.clients != nil:
	case bridge == "" || base.networkDenied:
		return nil, tasks{}
	default:
		return nil, tasks{before: []func(context.Context){func(ctx context.Context) {
			if err := networkpolicy.Remove(ctx, bridge); err != nil {
				logger.Error(err, "Failed to remove the rules of network policies")
			}
		}}}
	}
	warn := func(reason, message string) { conn.events.Node(corev1.EventTypeWarning, reason, message) }
	e, err := networkpolicy.New(networkpolicy.Options{
		Core: conn.clients.Heartbeats, Networking: conn.clients.Networking, Node: base.name, Bridge: bridge, Warn: warn, Clock: base.Clock,
	})
	if err != nil {
		logger.Error(err, "Network policies are not enforced on this node")
		warn(networkpolicy.NotEnforced, "Network policies are not enforced on this node: "+err.Error())
		return nil, tasks{}
	}
	return e, tasks{parts: []func(context.Context){e.Run}}
}

// connectionRules returns what has the rules of the pods' connections; nil if there are none.
func (c common) connectionRules() executor.Network {
	if c.network == nil {
		return nil
	}
	return c.network
}
