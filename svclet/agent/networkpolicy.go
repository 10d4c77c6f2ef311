package agent

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/containerd"
	"svc.dev/svc/svclet/executor"
	"svc.dev/svc/svclet/host"
	"svc.dev/svc/svclet/networkpolicy"
)

// networkPolicies makes what enforces network policies; it is nil without. On a machine
// that cannot filter connections, the agent works without. An agent that does not filter
// them removes the rules of one that did: nothing would update them, and they deny what pods
// send whose addresses they do not have.
func networkPolicies(ctx context.Context, base common, conn connections) (*networkpolicy.Enforcer, tasks) {
	logger := klog.FromContext(ctx)
	remove := tasks{before: []func(context.Context){base.remove("rules of network policies", networkpolicy.Remove)}}
	if !base.NetworkPolicy || conn.clients == nil {
		return nil, remove
	}
	warn := func(reason, message string) { conn.events.Node(corev1.EventTypeWarning, reason, message) }
	e, err := networkpolicy.New(networkpolicy.Options{
		Core: conn.clients.Heartbeats, Networking: conn.clients.Networking, Node: base.name, Bridge: base.bridge(), Warn: warn, Clock: base.Clock, Sysctl: base.parameters.Set,
		Results: containerd.ResultsDir,
	})
	if err != nil {
		logger.Error(err, "Network policies are not enforced on this node")
		warn(networkpolicy.NotEnforced, "Network policies are not enforced on this node: "+err.Error())
		return nil, remove
	}
	return e, tasks{parts: []func(context.Context){e.Run}}
}

// bridge returns the interface of the pods; empty if another runtime connects them.
func (c common) bridge() string {
	if c.Containerd == nil {
		return ""
	}
	return c.Containerd.Bridge()
}

// remove returns what removes rules of an agent that had them, if this process may do that.
func (c common) remove(rules string, remove func(bridge string) error) func(context.Context) {
	return func(ctx context.Context) {
		may, err := host.MayAdministerNetwork()
		if err == nil && may {
			err = remove(c.bridge())
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "Failed to remove rules", "rules", rules)
		}
	}
}

// connectionRules returns what has the rules of the pods' connections; nil if there are none.
func (c common) connectionRules() executor.Network {
	if c.network == nil {
		return nil
	}
	return c.network
}
