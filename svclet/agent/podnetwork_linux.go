package agent

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/podnetwork"
	"svc.dev/svc/svclet/podnetwork/plan"
)

// podNetwork makes what connects the pods of this node to those of others. On a machine that cannot have one, and without
// one, connections of pods leave the machine with its address; then the routes of an
// agent that had one are removed.
func podNetwork(ctx context.Context, base common, conn connections) tasks {
	logger := klog.FromContext(ctx)
	o := podnetwork.Options{Mode: base.PodNetwork, Node: base.name, Clock: base.Clock}
	if base.Containerd != nil {
		o.Bridge, o.Runtime = base.Containerd.Bridge(), base.Containerd
	}
	if base.PodNetwork != plan.None && conn.clients != nil {
		o.Core = conn.clients.Heartbeats
		o.Warn = func(reason, message string) { conn.events.Node(corev1.EventTypeWarning, reason, message) }
		n, err := podnetwork.New(o)
		if err == nil {
			return tasks{before: []func(context.Context){n.Prepare}, parts: []func(context.Context){n.Run}}
		}
		logger.Error(err, "Pods of this node and of others do not reach each other")
		o.Warn(podnetwork.NotReached, "Pods of this node and of others do not reach each other: "+err.Error())
	}
	if base.Containerd == nil || base.networkDenied {
		return tasks{}
	}
	return tasks{before: []func(context.Context){func(ctx context.Context) {
		if err := base.Containerd.Masquerade(ctx, true); err != nil {
			logger.Error(err, "Failed to let pods reach other machines")
		}
		if err := podnetwork.Remove(o.Bridge); err != nil {
			logger.Error(err, "Failed to remove routes and rules of the pod network")
		}
	}}}
}
