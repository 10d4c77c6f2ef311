// Package hostloadbalancer gives services of type LoadBalancer the addresses of the
// cluster's nodes, whose service proxies route their ports.
package hostloadbalancer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
)

// Class is the spec.loadBalancerClass of the services that get the nodes' addresses,
// beside those without a class.
const Class = "svc.dev/host"

// ReservedFlag is the flag of the ports that services do not get.
const ReservedFlag = "host-load-balancer-reserved-ports"

// New declares the controller. It is on demand, as another controller may own the
// services without a class.
func New() controller.Controller {
	o := &options{reserved: []int{22, 6443, 10250}}
	return controller.Controller{
		Name:     "hostloadbalancer",
		OnDemand: true,
		Reads:    []client.Object{&corev1.Service{}, &corev1.Node{}, &discoveryv1.EndpointSlice{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("", []string{"services/status"}, []string{"patch"}),
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.IntSliceVar(&o.reserved, ReservedFlag, o.reserved, "Ports of the nodes that services of type LoadBalancer do not get, as programs of the nodes use them.")
		},
		Validate: o.validate,
		Setup:    o.setup,
	}
}

type options struct {
	reserved []int
}

func (o *options) validate() []error {
	var errs []error
	for _, port := range o.reserved {
		if port < 1 || port > 65535 {
			errs = append(errs, fmt.Errorf("--%s: %d must be a port from 1 to 65535", ReservedFlag, port))
		}
	}
	return errs
}

// interval is the minimum time between two syncs, which read all services and nodes.
const interval = 200 * time.Millisecond

// everything is the only request: services compete for ports, so all are synced.
var everything = []reconcile.Request{{}}

func (o *options) setup(_ context.Context, env *controller.Env) error {
	r := &reconciler{client: env.Client, recorder: env.Recorder("service-controller"), reserved: o.reserved, now: env.Clock.Now}
	all := func(context.Context, client.Object) []reconcile.Request { return everything }
	return controller.Run(env, controller.Options{Name: "hostloadbalancer", Workers: 1, MinInterval: interval}, r,
		controller.Map(&corev1.Service{}, all),
		controller.Map(&corev1.Node{}, all, predicate.Funcs{UpdateFunc: nodeChanged}),
		controller.Map(&discoveryv1.EndpointSlice{}, all),
	)
}

// nodeChanged reports whether an update of a node is more than a heartbeat.
func nodeChanged(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
	return isReady(before) != isReady(after) || isExcluded(before) != isExcluded(after) ||
		before.Status.DaemonEndpoints != after.Status.DaemonEndpoints || !slices.Equal(before.Status.Addresses, after.Status.Addresses)
}
