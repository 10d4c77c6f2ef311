// Package endpointslice writes the EndpointSlices of services with a selector.
//
// The library k8s.io/endpointslice decides; this package provides its inputs and
// writes its results.
package endpointslice

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/endpointslice/topologycache"
	endpointsliceutil "k8s.io/endpointslice/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/endpoints/internal/services"
	"svc.dev/svc/controllers/index"
)

// New declares the controller.
func New() controller.Controller {
	o := &options{concurrent: 5, maxEndpoints: 100}
	return controller.Controller{
		Name:    "endpointslice",
		Aliases: []string{"endpointslice-controller"},
		Reads:   []client.Object{&corev1.Service{}, &corev1.Pod{}, &corev1.Node{}, &discoveryv1.EndpointSlice{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("discovery.k8s.io", []string{"endpointslices"}, []string{"create", "update", "delete"}),
			// The slices block the deletion of their owner.
			controller.Can("", []string{"services/finalizers"}, []string{"update"}),
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.IntVar(&o.concurrent, concurrentFlag, o.concurrent, "How many services get their EndpointSlices at the same time.")
			fs.IntVar(&o.maxEndpoints, maxEndpointsFlag, o.maxEndpoints, "How many endpoints an EndpointSlice holds at most, from 1 to 1000.")
			fs.DurationVar(&o.batch, batchFlag, o.batch, "How long changes of pods are collected before the EndpointSlices of their services follow.")
		},
		Validate: o.validate,
		Setup:    o.setup,
	}
}

const (
	concurrentFlag   = "concurrent-service-endpoint-syncs"
	maxEndpointsFlag = "max-endpoints-per-slice"
	batchFlag        = "endpointslice-updates-batch-period"
)

// maxMaxEndpoints is how many endpoints the API server accepts in a slice.
const maxMaxEndpoints = 1000

// manager is the value of the label endpointslice.kubernetes.io/managed-by.
const manager = "endpointslice-controller.k8s.io"

// ownBatchPeriod is the batch period of changes of slices and nodes: most come in
// large numbers, and the controller makes many of the former itself.
const ownBatchPeriod = time.Second

type options struct {
	concurrent   int
	maxEndpoints int
	batch        time.Duration
}

func (o *options) validate() []error {
	errs := controller.AtLeastOne(concurrentFlag, o.concurrent)
	if o.maxEndpoints < 1 || o.maxEndpoints > maxMaxEndpoints {
		errs = append(errs, fmt.Errorf("--%s: %d must be from 1 to %d", maxEndpointsFlag, o.maxEndpoints, maxMaxEndpoints))
	}
	return append(errs, controller.NotNegative(batchFlag, o.batch)...)
}

func (o *options) setup(ctx context.Context, env *controller.Env) error {
	if err := env.Indexes.Need(ctx, services.BySelector(), index.SlicesByService(), byHints()); err != nil {
		return err
	}
	r := &reconciler{
		client:       env.Client,
		events:       env.Recorder("endpoint-slice-controller"),
		maxEndpoints: int32(o.maxEndpoints),
		zones:        zones{cache: topologycache.NewTopologyCache()},
		triggers:     endpointsliceutil.NewTriggerTimeTracker(),
	}
	return controller.Run(env, controller.Options{Name: "endpointslice", Workers: o.concurrent}, r,
		controller.For(&corev1.Service{}),
		services.Watch(env.Manager.GetCache()).Batched(o.batch),
		controller.Map(&discoveryv1.EndpointSlice{}, serviceOf).Batched(ownBatchPeriod),
		r.zones.watch(env.Manager.GetCache()))
}

// managed reports whether the object is an EndpointSlice of this controller.
func managed(obj client.Object) bool {
	return obj.GetLabels()[discoveryv1.LabelManagedBy] == manager
}

// serviceOf returns the service of a slice of this controller.
func serviceOf(_ context.Context, slice client.Object) []reconcile.Request {
	name := slice.GetLabels()[discoveryv1.LabelServiceName]
	if name == "" || !managed(slice) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: slice.GetNamespace(), Name: name}}}
}
