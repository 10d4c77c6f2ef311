// Package endpoints tells in Endpoints where the pods of a service are: those
// that its selector finds. EndpointSlices have taken their place; Endpoints are
// for clients that do not know those, and hold at most 1000 addresses.
package endpoints

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	endpointsliceutil "k8s.io/endpointslice/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/endpoints/internal/services"
	"svc.dev/svc/controllers/endpoints/internal/subsets"
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
			// For addresses in networks that the API server guards.
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
	// managedBy is the label of the Endpoints that the controller has made, and
	// manager its value.
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
			// What the controller has left behind when it ended; Endpoints that come
			// before their service are no such thing.
			CreateFunc: func(e event.CreateEvent) bool { return e.IsInInitialList },
			UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectNew.GetLabels()[managedBy] == manager },
		}))
}

// reconciler reads services with a selector and their pods; it alone writes
// their Endpoints. It deletes the Endpoints of any service that is gone.
type reconciler struct {
	client   client.Client
	live     client.Reader
	events   record.EventRecorder
	triggers *endpointsliceutil.TriggerTimeTracker
}

// Reconcile brings the Endpoints of a service in line with its pods.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	service := &corev1.Service{}
	err := r.client.Get(ctx, req.NamespacedName, service)
	if apierrors.IsNotFound(err) {
		r.triggers.DeleteService(req.Namespace, req.Name)
		return reconcile.Result{}, r.delete(ctx, req)
	}
	if err != nil || len(service.Spec.Selector) == 0 || service.Spec.Type == corev1.ServiceTypeExternalName {
		// Somebody else says where such a service is: a user, or DNS.
		return reconcile.Result{}, err
	}
	var pods corev1.PodList
	selector := client.MatchingLabelsSelector{Selector: labels.ValidatedSetSelector(service.Spec.Selector)}
	if err := r.client.List(ctx, &pods, client.InNamespace(service.Namespace), selector, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, err
	}
	current := &corev1.Endpoints{}
	if err := r.client.Get(ctx, req.NamespacedName, current); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	found := make([]*corev1.Pod, len(pods.Items))
	for i := range pods.Items {
		found[i] = &pods.Items[i]
	}
	trigger := r.triggers.ComputeEndpointLastChangeTriggerTime(service.Namespace, service, found)
	wanted := desired(service, found, current)
	if current.ResourceVersion != "" && same(wanted, current) {
		return reconcile.Result{}, nil
	}
	delete(wanted.Annotations, corev1.EndpointsLastChangeTriggerTime)
	if !trigger.IsZero() {
		wanted.Annotations[corev1.EndpointsLastChangeTriggerTime] = trigger.UTC().Format(time.RFC3339Nano)
	}
	return reconcile.Result{}, r.write(ctx, service, wanted)
}

// write creates or updates Endpoints.
func (r *reconciler) write(ctx context.Context, service *corev1.Service, e *corev1.Endpoints) error {
	// Who creates loses what he has given if the API server refuses.
	about := e.DeepCopy()
	reason, what := "FailedToUpdateEndpoint", "update endpoint"
	var err error
	if e.ResourceVersion != "" {
		err = r.client.Update(ctx, e)
	} else {
		reason, what = "FailedToCreateEndpoint", "create endpoint for service"
		err = r.client.Create(ctx, e)
	}
	switch {
	case err == nil, apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
		return err
	}
	r.events.Eventf(about, corev1.EventTypeWarning, reason, "Failed to %s %s/%s: %v", what, service.Namespace, service.Name, err)
	return fmt.Errorf("endpoints of service %s/%s: %w", service.Namespace, service.Name, err)
}

// delete deletes the Endpoints of a service that is gone, unless they are what
// an old client elects its leader with.
func (r *reconciler) delete(ctx context.Context, req reconcile.Request) error {
	e := &corev1.Endpoints{}
	if err := r.client.Get(ctx, req.NamespacedName, e); err != nil {
		return client.IgnoreNotFound(err)
	}
	if _, lock := e.Annotations[resourcelock.LeaderElectionRecordAnnotationKey]; lock || e.DeletionTimestamp != nil {
		return nil
	}
	// The cache may know a service's Endpoints before the service.
	if err := r.live.Get(ctx, req.NamespacedName, &corev1.Service{}); !apierrors.IsNotFound(err) {
		return err
	}
	err := r.client.Delete(ctx, e, client.Preconditions{UID: &e.UID})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete endpoints %s: %w", req.NamespacedName, err)
	}
	return nil
}

// desired are the Endpoints of a service with these pods, made from the current
// ones.
func desired(service *corev1.Service, pods []*corev1.Pod, current *corev1.Endpoints) *corev1.Endpoints {
	e := current.DeepCopy()
	e.Namespace, e.Name = service.Namespace, service.Name
	e.Labels = map[string]string{}
	maps.Copy(e.Labels, service.Labels)
	delete(e.Labels, corev1.IsHeadlessService)
	if headless(service) {
		e.Labels[corev1.IsHeadlessService] = ""
	}
	e.Labels[managedBy] = manager
	if e.Annotations == nil {
		e.Annotations = map[string]string{}
	}
	var truncated bool
	e.Subsets, truncated = truncate(subsets.Pack(addresses(service, pods)))
	delete(e.Annotations, corev1.EndpointsOverCapacity)
	if truncated {
		e.Annotations[corev1.EndpointsOverCapacity] = "truncated"
	}
	return e
}

func headless(service *corev1.Service) bool {
	return service.Spec.ClusterIP == "" || service.Spec.ClusterIP == corev1.ClusterIPNone
}
