// Package servicecidr marks ServiceCIDRs as ready and protects them from deletion while
// services have addresses that are in no other ServiceCIDR.
package servicecidr

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/apis/servicerange"
	"svc.dev/svc/controllers/controller"
)

const (
	// Name is the controller's name.
	Name    = "servicecidr"
	workers = 2
)

// New declares the controller.
func New() controller.Controller {
	return controller.Controller{
		Name:    Name,
		Aliases: []string{"service-cidr-controller"},
		Gate:    "MultiCIDRServiceAllocator",
		Newer:   true,
		// The API server behind a host allocates addresses from its flag only.
		Standalone: true,
		Reads:      []client.Object{&networkingv1.ServiceCIDR{}, &networkingv1.IPAddress{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can(networkingv1.GroupName, []string{"servicecidrs", "servicecidrs/status"}, []string{"patch"}),
		},
		Setup: setup,
	}
}

func setup(_ context.Context, env *controller.Env) error {
	r := &reconciler{client: env.Client, live: env.Live, clock: env.Clock, events: env.Recorder("service-cidr-controller")}
	comesOrGoes := predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
	return controller.Run(env, controller.Options{Name: Name, Workers: workers}, r,
		controller.For(&networkingv1.ServiceCIDR{}),
		controller.Map(&networkingv1.ServiceCIDR{}, r.deleted),
		controller.Map(&networkingv1.IPAddress{}, r.deletedOf, comesOrGoes))
}

// reconciler reads ServiceCIDRs and IPAddresses. It alone writes the finalizer
// networking.k8s.io/service-cidr-finalizer and, beside the API server's for the default
// ServiceCIDR, the condition Ready.
type reconciler struct {
	client client.Client
	live   client.Reader
	clock  clock.PassiveClock
	events record.EventRecorder
}

// deleted returns the ServiceCIDRs that are being deleted: any other one may keep their
// addresses.
func (r *reconciler) deleted(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.deletedThat(ctx, func(*networkingv1.ServiceCIDR) bool { return true })
}

// deletedOf returns the ServiceCIDRs that are being deleted and have an address.
func (r *reconciler) deletedOf(ctx context.Context, obj client.Object) []reconcile.Request {
	address, ok := ofService(obj.(*networkingv1.IPAddress))
	if !ok {
		return nil
	}
	return r.deletedThat(ctx, func(object *networkingv1.ServiceCIDR) bool { return servicerange.Has(object, address) })
}

func (r *reconciler) deletedThat(ctx context.Context, match func(*networkingv1.ServiceCIDR) bool) []reconcile.Request {
	var all networkingv1.ServiceCIDRList
	if err := r.client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the manager stops
	}
	var requests []reconcile.Request
	for i := range all.Items {
		if object := &all.Items[i]; object.DeletionTimestamp != nil && match(object) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)})
		}
	}
	return requests
}

// Reconcile writes the finalizer and the condition of a ServiceCIDR.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	object := &networkingv1.ServiceCIDR{}
	if err := r.client.Get(ctx, req.NamespacedName, object); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	next, err := r.decide(ctx, r.client, object)
	if err == nil && next.release {
		// The cache may be older than the last addresses.
		next, err = r.decide(ctx, r.live, object)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := r.writeFinalizer(ctx, object, next); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(fmt.Errorf("finalizers of ServiceCIDR %s: %w", object.Name, err))
	}
	if err := r.writeReady(ctx, object, next.ready); client.IgnoreNotFound(err) != nil {
		if next.ready.Status == metav1.ConditionTrue {
			r.events.Event(object, corev1.EventTypeWarning, "KubernetesServiceCIDRError", "The ServiceCIDR Status can not be set to Ready=True")
		}
		return reconcile.Result{}, fmt.Errorf("condition of ServiceCIDR %s: %w", object.Name, err)
	}
	return reconcile.Result{RequeueAfter: next.after}, nil
}

func (r *reconciler) decide(ctx context.Context, from client.Reader, object *networkingv1.ServiceCIDR) (action, error) {
	if object.DeletionTimestamp == nil {
		return decide(object, nil, nil, r.clock.Now()), nil
	}
	var all networkingv1.ServiceCIDRList
	var addresses networkingv1.IPAddressList
	if err := from.List(ctx, &all); err != nil {
		return action{}, err
	}
	if err := from.List(ctx, &addresses); err != nil {
		return action{}, err
	}
	return decide(object, all.Items, addresses.Items, r.clock.Now()), nil
}

// writeFinalizer adds or removes the finalizer.
func (r *reconciler) writeFinalizer(ctx context.Context, object *networkingv1.ServiceCIDR, next action) error {
	patch := client.MergeFromWithOptions(object.DeepCopy(), client.MergeFromWithOptimisticLock{})
	switch {
	case next.finalize:
		controllerutil.AddFinalizer(object, finalizer)
	case next.release:
		controllerutil.RemoveFinalizer(object, finalizer)
	default:
		return nil
	}
	return r.client.Patch(ctx, object, patch)
}

// writeReady writes the condition Ready, if it has a status and differs.
func (r *reconciler) writeReady(ctx context.Context, object *networkingv1.ServiceCIDR, ready metav1.Condition) error {
	old := meta.FindStatusCondition(object.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
	if ready.Status == "" || old != nil && old.Status == ready.Status && old.Reason == ready.Reason && old.Message == ready.Message {
		return nil
	}
	patch := client.MergeFromWithOptions(object.DeepCopy(), client.MergeFromWithOptimisticLock{})
	ready.Type, ready.LastTransitionTime = networkingv1.ServiceCIDRConditionReady, metav1.NewTime(r.clock.Now())
	meta.SetStatusCondition(&object.Status.Conditions, ready)
	return r.client.Status().Patch(ctx, object, patch)
}
