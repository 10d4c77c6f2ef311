// Package bootstrap owns the objects that every cluster must have: the system
// namespaces, the kubernetes Service and its endpoints, the default ServiceCIDR, the flow-control
// configuration, the system priority classes, the default roles, the
// configuration by which aggregated servers trust this one, and the date since
// which uses of legacy tokens are tracked.
//
// Each is written by an Ensure function, which several servers may call at any
// time. A Step runs it when the server has started and then at an interval.
package bootstrap

import (
	"context"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
)

// Config is the configuration of the steps.
type Config struct {
	// Client is a client of this server with all rights, in canonical groups and
	// the newest versions.
	Client kubernetes.Interface
	Clock  clock.Clock
	// Service is the kubernetes Service.
	Service Service
	// ServiceCIDR, unless nil, is the default ServiceCIDR.
	ServiceCIDR *ServiceCIDR
	// Advertise is the address at which clients in the cluster reach this server.
	// A loopback address is not published, as on other machines it is their own;
	// nor is the zero value.
	Advertise netip.AddrPort
	// Shared is set if other servers may use the same storage. Their endpoints are
	// published too, and this server removes its own when it stops.
	Shared bool
	// Hosted is set for a server behind a host, whose namespaces, Service and
	// authentication are the host's.
	Hosted bool
	// Authentication is published to aggregated servers.
	Authentication Authentication
}

// repairInterval is the resync period: how often a step repairs objects that users
// or other clients have changed.
const repairInterval = 5 * time.Minute

// Steps returns the steps of a server's bootstrap. They may run at the same time.
// Their names are those of the server's post-start hooks.
func Steps(c Config) []Step {
	steps := []Step{
		{Name: "priority-and-fairness-config-producer", Interval: repairInterval, Ensure: func(ctx context.Context) error {
			return EnsureFlowControl(ctx, c.Client.FlowcontrolV1())
		}},
		{Name: "scheduling/bootstrap-system-priority-classes", Interval: repairInterval, Ensure: func(ctx context.Context) error {
			return EnsurePriorityClasses(ctx, c.Client.SchedulingV1())
		}},
	}
	if c.Hosted {
		return steps
	}
	auth := &c.Authentication
	var ranges *serviceCIDRKeeper
	if c.ServiceCIDR != nil {
		ranges = newServiceCIDRKeeper(*c.ServiceCIDR)
		steps = append(steps, ranges.step())
	}
	steps = append(steps, []Step{
		{Name: "bootstrap-controller", Interval: EndpointsInterval, Ensure: func(ctx context.Context) error {
			return ensureBasics(ctx, c.Client, c.Service, ranges)
		}},
		{Name: "start-legacy-token-tracking-controller", Interval: repairInterval, Ensure: func(ctx context.Context) error {
			return EnsureTokenTracking(ctx, c.Client.CoreV1(), c.Clock.Now())
		}},
		{Name: "start-cluster-authentication-info-controller", Interval: repairInterval, Wake: auth.changes(), Ensure: func(ctx context.Context) error {
			return EnsureAuthentication(ctx, c.Client.CoreV1(), *auth, c.Clock.Now())
		}},
	}...)
	if addr := c.Advertise.Addr(); addr.IsValid() && !addr.IsLoopback() && !addr.IsUnspecified() {
		steps = append(steps, NewEndpoints(c.Client, c.Clock, c.Advertise, c.Shared).Step())
	}
	return steps
}

// ensureBasics makes the system namespaces and the kubernetes Service, which needs an address
// of the ranges.
func ensureBasics(ctx context.Context, client kubernetes.Interface, service Service, ranges *serviceCIDRKeeper) error {
	if err := EnsureNamespaces(ctx, client.CoreV1(), SystemNamespaces()...); err != nil {
		return err
	}
	if err := ranges.wait(ctx); err != nil {
		return err
	}
	return EnsureService(ctx, client.CoreV1(), service)
}

// cached returns the options of a read from the watch cache as it is, if the kind has one, and
// cachedList those of a list. A get that is at least as new as its request asks etcd. Such a list
// waits for etcd to report the progress of the watch, which the library asks for at most every
// 100 ms. If another server has written since, a create finds the object, or an update fails and
// the step is repeated.
func cached() metav1.GetOptions { return metav1.GetOptions{ResourceVersion: "0"} }

func cachedList() metav1.ListOptions { return metav1.ListOptions{ResourceVersion: "0"} }

// each calls f for every item at the same time.
func each[T any](ctx context.Context, items []T, f func(ctx context.Context, item T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, item := range items {
		group.Go(func() error { return f(ctx, item) })
	}
	return group.Wait()
}
