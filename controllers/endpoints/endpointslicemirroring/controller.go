// Package endpointslicemirroring mirrors the Endpoints that users write for
// services without a selector to EndpointSlices.
package endpointslicemirroring

import (
	"context"
	"fmt"
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
	"svc.dev/svc/controllers/index"
)

// New declares the controller.
func New() controller.Controller {
	o := &options{concurrent: 5, limit: maxLimit}
	return controller.Controller{
		Name:    "endpointslicemirroring",
		Aliases: []string{"endpointslice-mirroring-controller"},
		Reads:   []client.Object{&corev1.Service{}, &corev1.Endpoints{}, &discoveryv1.EndpointSlice{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("discovery.k8s.io", []string{"endpointslices"}, []string{"create", "update", "delete"}),
			// For addresses in networks that the API server restricts.
			controller.Can("discovery.k8s.io", []string{"endpointslices/restricted"}, []string{"create"}),
			// The slices block the deletion of their owner.
			controller.Can("", []string{"endpoints/finalizers"}, []string{"update"}),
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.IntVar(&o.concurrent, concurrentFlag, o.concurrent, "How many Endpoints are mirrored at the same time.")
			fs.IntVar(&o.limit, limitFlag, o.limit, "How many addresses of a subset of Endpoints are mirrored at most, from 1 to 1000.")
			fs.DurationVar(&o.batch, batchFlag, o.batch, "How long changes of EndpointSlices are collected before they are corrected.")
		},
		Validate: o.validate,
		Setup:    o.setup,
	}
}

const (
	concurrentFlag = "mirroring-concurrent-service-endpoint-syncs"
	limitFlag      = "mirroring-max-endpoints-per-subset"
	batchFlag      = "mirroring-endpointslice-updates-batch-period"
)

// maxLimit is how many endpoints the API server accepts in a slice.
const maxLimit = 1000

// manager is the value of the label endpointslice.kubernetes.io/managed-by.
const manager = "endpointslicemirroring-controller.k8s.io"

type options struct {
	concurrent int
	limit      int
	batch      time.Duration
}

func (o *options) validate() []error {
	errs := controller.AtLeastOne(concurrentFlag, o.concurrent)
	if o.limit < 1 || o.limit > maxLimit {
		errs = append(errs, fmt.Errorf("--%s: %d must be from 1 to %d", limitFlag, o.limit, maxLimit))
	}
	return append(errs, controller.NotNegative(batchFlag, o.batch)...)
}

func (o *options) setup(ctx context.Context, env *controller.Env) error {
	if err := env.Indexes.Need(ctx, index.SlicesByService()); err != nil {
		return err
	}
	r := &reconciler{client: env.Client, events: env.Recorder("endpoint-slice-mirroring-controller"), limit: o.limit}
	return controller.Run(env, controller.Options{Name: "endpointslicemirroring", Workers: o.concurrent}, r,
		controller.For(&corev1.Endpoints{}),
		// A service is mirrored while it has no selector.
		controller.For(&corev1.Service{}, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
			return len(e.ObjectOld.(*corev1.Service).Spec.Selector) == 0 != (len(e.ObjectNew.(*corev1.Service).Spec.Selector) == 0)
		}}),
		controller.Map(&discoveryv1.EndpointSlice{}, endpointsOf).Batched(o.batch))
}

// endpointsOf returns the Endpoints that a slice of the controller mirrors.
func endpointsOf(_ context.Context, slice client.Object) []reconcile.Request {
	name := slice.GetLabels()[discoveryv1.LabelServiceName]
	if name == "" || !managed(slice) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: slice.GetNamespace(), Name: name}}}
}

// managed reports whether the object is an EndpointSlice of this controller.
func managed(obj client.Object) bool { return obj.GetLabels()[discoveryv1.LabelManagedBy] == manager }
