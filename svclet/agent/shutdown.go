package agent

import (
	"context"

	"svc.dev/svc/svclet/node"
	"svc.dev/svc/svclet/shutdown"
)

// gracefulShutdown is what delays the shutdown of the machine until the pods have ended,
// if that is configured.
func gracefulShutdown(base common, conn connections, p *pods, n *node.Node) tasks {
	groups := shutdown.Groups(base.Configuration)
	if len(groups) == 0 {
		return tasks{}
	}
	manager := shutdown.New(shutdown.Options{
		Groups: groups, Pods: p.Manager, State: base.shutdown, Changed: n.Changed, Event: conn.events.Node, Clock: base.Clock,
		Connect: func(ctx context.Context) (shutdown.Machine, error) {
			return shutdown.ConnectLogind(ctx, shutdown.LogindOptions{})
		},
	})
	return tasks{parts: []func(context.Context){manager.Run}}
}
