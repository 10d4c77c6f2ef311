// Package bootstrap makes the objects that a cluster cannot be without, and
// keeps them: the system namespaces, the kubernetes Service and its endpoints,
// the flow-control configuration, the system priority classes, and what
// aggregated servers must know to trust this one.
//
// Every thing is an Ensure function that may be called at any time and by
// several servers at once. Steps puts them in order; each Step runs once when
// the server has started and then now and again.
package bootstrap

import (
	"context"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
)

// Config says what to bootstrap.
type Config struct {
	// Client talks to the server itself, past authorization, in canonical
	// groups and the newest versions.
	Client kubernetes.Interface
	Clock  clock.Clock
	// Service is the kubernetes Service.
	Service Service
	// Advertise is where clients in the cluster reach this server. A loopback
	// address is not published, because it is another machine's own there; nor
	// is the zero value.
	Advertise netip.AddrPort
	// Shared says that other servers may be serving the same storage. Their
	// endpoints are published too, and this one's is withdrawn at the end.
	Shared bool
	// Authentication is what aggregated servers learn.
	Authentication Authentication
}

// repairInterval is how often a step looks whether somebody has changed what
// it made.
const repairInterval = 5 * time.Minute

// Steps are the steps of a server's bootstrap. They may run at the same time.
// Their names are those of the server's post-start hooks.
func Steps(c Config) []Step {
	auth := &c.Authentication
	steps := []Step{
		{Name: "bootstrap-controller", Interval: repairInterval, Ensure: func(ctx context.Context) error {
			return ensureBasics(ctx, c.Client, c.Service)
		}},
		{Name: "priority-and-fairness-config-producer", Interval: repairInterval, Ensure: func(ctx context.Context) error {
			return EnsureFlowControl(ctx, c.Client.FlowcontrolV1())
		}},
		{Name: "scheduling/bootstrap-system-priority-classes", Interval: repairInterval, Ensure: func(ctx context.Context) error {
			return EnsurePriorityClasses(ctx, c.Client.SchedulingV1())
		}},
		{Name: "start-cluster-authentication-info-controller", Interval: repairInterval, Wake: auth.changes(), Ensure: func(ctx context.Context) error {
			return EnsureAuthentication(ctx, c.Client.CoreV1(), *auth, c.Clock.Now())
		}},
	}
	if addr := c.Advertise.Addr(); addr.IsValid() && !addr.IsLoopback() && !addr.IsUnspecified() {
		steps = append(steps, NewEndpoints(c.Client, c.Clock, c.Advertise, c.Shared).Step())
	}
	return steps
}

// ensureBasics makes the system namespaces and the kubernetes Service.
func ensureBasics(ctx context.Context, client kubernetes.Interface, service Service) error {
	if err := EnsureNamespaces(ctx, client.CoreV1(), SystemNamespaces()...); err != nil {
		return err
	}
	return EnsureService(ctx, client.CoreV1(), service)
}

// each calls f for every item at the same time.
func each[T any](ctx context.Context, items []T, f func(ctx context.Context, item T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, item := range items {
		group.Go(func() error { return f(ctx, item) })
	}
	return group.Wait()
}
