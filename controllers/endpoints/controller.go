// Package endpoints writes the Endpoints of services with a selector, for clients
// that do not use EndpointSlices.
//
// Endpoints hold at most 1000 addresses. The controllers of EndpointSlices are in
// the folders below, which share the packages under internal.
package endpoints

import (
	"context"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	endpointsliceutil "k8s.io/endpointslice/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/endpoints/internal/services"
)

// New declares the controller.
func New() controller.Controller {
	o := &options{concurrent: 5}
	return controller.Controller{
		Name:    "endpoint",
		Aliases: []string{"endpoints-controller", "endpoints"},
		Reads:   []client.Object{&corev1.Service{}, &corev1.Pod{}, &corev1.Endpoints{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("", []string{"endpoints"}, []string{"create", "update", "delete"}),
			// For addresses in networks that the API server restricts.
			controller.Can("", []string{"endpoints/restricted"}, []string{"create"}),
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.IntVar(&o.concurrent, concurrentFlag, o.concurrent, "How many services get their Endpoints at the same time.")
			fs.DurationVar(&o.batch, batchFlag, o.batch, "How long changes of pods are collected before the Endpoints of their services follow.")
		},
		Validate: o.validate,
		Setup:    o.setup,
	}
}

const (
	concurrentFlag = "concurrent-endpoint-syncs"
	batchFlag      = "endpoint-updates-batch-period"
)

const (
	// managedBy is the label of the Endpoints of this controller, and manager its
	// value.
	managedBy = "endpoints.kubernetes.io/managed-by"
	manager   = "endpoint-controller"
)

type options struct {
	concurrent int
	batch      time.Duration
}

func (o *options) validate() []error {
	return append(controller.AtLeastOne(concurrentFlag, o.concurrent), controller.NotNegative(batchFlag, o.batch)...)
}

func (o *options) setup(ctx context.Context, env *controller.Env) error {
	if err := env.Indexes.Need(ctx, services.BySelector()); err != nil {
		return err
	}
	r := &reconciler{client: env.Client, live: env.Live, events: env.Recorder(manager), triggers: endpointsliceutil.NewTriggerTimeTracker()}
	return controller.Run(env, controller.Options{Name: "endpoint", Workers: o.concurrent}, r,
		controller.For(&corev1.Service{}),
		services.Watch(env.Manager.GetCache()).Batched(o.batch),
		controller.For(&corev1.Endpoints{}, predicate.Funcs{
			// The initial list may have Endpoints whose service was deleted while no
			// controller ran. Later on, Endpoints may be created before their service.
			CreateFunc: func(e event.CreateEvent) bool { return e.IsInInitialList },
			UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectNew.GetLabels()[managedBy] == manager },
		}))
}
