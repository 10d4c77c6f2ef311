// Package endpointslice tells in EndpointSlices where the pods of a service are:
// those that its selector finds.
//
// The rules are those of k8s.io/endpointslice; this package feeds it.
package endpointslice

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/record"
	library "k8s.io/endpointslice"
	"k8s.io/endpointslice/topologycache"
	endpointsliceutil "k8s.io/endpointslice/util"
	"k8s.io/klog/v2"
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

// maxMaxEndpoints is how many endpoints the API server takes in a slice.
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

// reconciler reads services, their pods, the pods' nodes and EndpointSlices; it
// alone writes the EndpointSlices with the label
// endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io.
type reconciler struct {
	client       client.Client
	events       record.EventRecorder
	maxEndpoints int32
	zones        zones
	triggers     *endpointsliceutil.TriggerTimeTracker
}

// Reconcile brings the slices of a service in line with its pods. When the
// service is gone, they go with it, as it owns them.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	service := &corev1.Service{}
	err := r.client.Get(ctx, req.NamespacedName, service)
	if apierrors.IsNotFound(err) {
		r.triggers.DeleteService(req.Namespace, req.Name)
		r.zones.forget(req.NamespacedName.String())
		return reconcile.Result{}, nil
	}
	if err != nil || len(service.Spec.Selector) == 0 || service.Spec.Type == corev1.ServiceTypeExternalName {
		// Somebody else says where such a service is: a user, or DNS.
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, r.reconcile(ctx, service)
}

func (r *reconciler) reconcile(ctx context.Context, service *corev1.Service) error {
	var pods corev1.PodList
	selector := client.MatchingLabelsSelector{Selector: labels.ValidatedSetSelector(service.Spec.Selector)}
	if err := r.client.List(ctx, &pods, client.InNamespace(service.Namespace), selector, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	existing, err := r.slices(ctx, service)
	if err != nil {
		return err
	}
	nodes := nodes{ctx, r.client}
	if hinted(service) {
		if err := r.zones.update(ctx, nodes); err != nil {
			return err
		}
	}
	w, err := newWriter(ctx, r.client, existing)
	if err != nil {
		return err
	}
	// The client waits for what it has written, so that nothing has to be
	// tracked from one reconciliation to the next.
	rules := library.NewReconciler(clientset{writer: w}, nodes, r.maxEndpoints, endpointsliceutil.NewEndpointSliceTracker(),
		r.zones.cache, r.events, manager, library.WithPreferSameTrafficDistributionEnabled(true))
	found := pointers(pods.Items)
	trigger := r.triggers.ComputeEndpointLastChangeTriggerTime(service.Namespace, service, found)
	err = rules.Reconcile(klog.FromContext(ctx), service, found, existing, trigger)
	if refused := w.err(); refused != nil && outdated(refused) {
		return refused
	}
	if err == nil {
		return nil
	}
	r.events.Eventf(service, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices",
		"Error updating Endpoint Slices for Service %s/%s: %v", service.Namespace, service.Name, err)
	return err
}

// outdated tells that slices have changed since they were read, which needs no
// word: it is tried again.
func outdated(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err)
}

// slices are those that the controller has made for a service and that are not
// being deleted.
func (r *reconciler) slices(ctx context.Context, service *corev1.Service) ([]*discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	err := r.client.List(ctx, &list, client.InNamespace(service.Namespace), client.MatchingFields{index.SlicesByService().Name: service.Name})
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

func managed(obj client.Object) bool {
	return obj.GetLabels()[discoveryv1.LabelManagedBy] == manager
}

// serviceOf is the service that a slice of the controller belongs to.
func serviceOf(_ context.Context, slice client.Object) []reconcile.Request {
	name := slice.GetLabels()[discoveryv1.LabelServiceName]
	if name == "" || !managed(slice) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: slice.GetNamespace(), Name: name}}}
}
