package agent

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/svclet/node"
	"svc.dev/svc/svclet/podmanager"
	"svc.dev/svc/svclet/shutdown"
	"svc.dev/svc/svclet/status"
)

// shutdownPods implements shutdown.Pods.
type shutdownPods struct {
	*podmanager.Manager
	statuses *status.Manager
}

// Written implements shutdown.Pods.
func (p shutdownPods) Written(uid types.UID) bool { return p.statuses.Written(uid) }

// gracefulShutdown is what delays the shutdown of the machine until the pods have ended,
// if that is configured.
func gracefulShutdown(base common, conn connections, p *pods, n *node.Node) tasks {
	groups := shutdown.Groups(base.Configuration)
	if len(groups) == 0 {
		return tasks{}
	}
	manager := shutdown.New(shutdown.Options{
		Groups: groups, Pods: shutdownPods{p.Manager, p.statuses}, State: base.shutdown, Changed: n.Changed, Event: conn.events.Node, Clock: base.Clock,
		Connect: func(ctx context.Context) (shutdown.Machine, error) {
			return shutdown.ConnectLogind(ctx, shutdown.LogindOptions{})
		},
	})
	return tasks{parts: []func(context.Context){manager.Run}}
}
