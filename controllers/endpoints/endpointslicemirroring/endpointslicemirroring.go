// Package endpointslicemirroring makes EndpointSlices of the Endpoints that users
// write for services without a selector: whoever routes to services looks at
// EndpointSlices only.
package endpointslicemirroring

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
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
			// For addresses in networks that the API server guards.
			controller.Can("discovery.k8s.io", []string{"endpointslices/restricted"}, []string{"create"}),
			// The slices block the deletion of their owner.
			controller.Can("", []string{"endpoints/finalizers"}, []string{"update"}),
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.IntVar(&o.concurrent, concurrentFlag, o.concurrent, "How many Endpoints are mirrored at the same time.")
			fs.IntVar(&o.limit, limitFlag, o.limit, "How many addresses of a subset of Endpoints are mirrored at most, from 1 to 1000.")
			fs.DurationVar(&o.batch, batchFlag, o.batch, "How long changes of EndpointSlices are collected before they are mended.")
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

// maxLimit is how many endpoints the API server takes in a slice.
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
		// A service that wins or loses its selector.
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

func managed(obj client.Object) bool { return obj.GetLabels()[discoveryv1.LabelManagedBy] == manager }

// reconciler reads services, Endpoints and EndpointSlices; it alone writes the
// EndpointSlices with the label
// endpointslice.kubernetes.io/managed-by=endpointslicemirroring-controller.k8s.io.
type reconciler struct {
	client client.Client
	events record.EventRecorder
	limit  int
}

// Reconcile brings the slices of Endpoints in line with them.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	endpoints, err := get(ctx, r.client, req.NamespacedName, &corev1.Endpoints{})
	if err != nil {
		return reconcile.Result{}, err
	}
	service, err := get(ctx, r.client, req.NamespacedName, &corev1.Service{})
	if err != nil {
		return reconcile.Result{}, err
	}
	existing, err := r.slices(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	var wanted []*discoveryv1.EndpointSlice
	if endpoints != nil && endpoints.DeletionTimestamp == nil && mirrored(endpoints, service) {
		gvk, err := apiutil.GVKForObject(endpoints, r.client.Scheme())
		if err != nil {
			return reconcile.Result{}, err
		}
		image := mirror(endpoints, *metav1.NewControllerRef(endpoints, gvk), r.limit)
		r.tell(endpoints, image)
		wanted = image.slices
	}
	return reconcile.Result{}, r.write(ctx, compare(wanted, existing))
}

// tell tells what is left out.
func (r *reconciler) tell(e *corev1.Endpoints, m image) {
	if m.invalid > 0 {
		r.events.Eventf(e, corev1.EventTypeWarning, "InvalidIPAddress", "Skipped %d invalid IP addresses when mirroring to EndpointSlices", m.invalid)
	}
	if m.tooMany > 0 {
		r.events.Eventf(e, corev1.EventTypeWarning, "TooManyAddressesToMirror",
			"A max of %d addresses can be mirrored to EndpointSlices per Endpoints subset. %d addresses were skipped", r.limit, m.invalid+m.tooMany)
	}
}

// write does what is planned. A slice that is gone, or somebody else's by now,
// needs no deletion.
func (r *reconciler) write(ctx context.Context, p plan) error {
	var errs []error
	for _, s := range p.create {
		if err := r.client.Create(ctx, s); err != nil && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			errs = append(errs, err)
		}
	}
	for _, s := range p.update {
		errs = append(errs, r.client.Update(ctx, s))
	}
	for _, s := range p.remove {
		errs = append(errs, client.IgnoreNotFound(r.client.Delete(ctx, s, client.Preconditions{UID: &s.UID})))
	}
	return errors.Join(errs...)
}

// slices are those that the controller has made and that are not being deleted.
func (r *reconciler) slices(ctx context.Context, service client.ObjectKey) ([]*discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	err := r.client.List(ctx, &list, client.InNamespace(service.Namespace),
		client.MatchingFields{index.SlicesByService().Name: service.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	var own []*discoveryv1.EndpointSlice
	for i := range list.Items {
		if s := &list.Items[i]; managed(s) && s.DeletionTimestamp == nil {
			own = append(own, s)
		}
	}
	return own, nil
}

// get gets an object; nil is none.
func get[T client.Object](ctx context.Context, reader client.Reader, key client.ObjectKey, obj T) (T, error) {
	err := reader.Get(ctx, key, obj, client.UnsafeDisableDeepCopy)
	if err != nil {
		var none T
		return none, client.IgnoreNotFound(err)
	}
	return obj, nil
}
