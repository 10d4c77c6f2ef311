// Package namespace empties namespaces that are being deleted, and then lets
// them go.
//
// A terminating namespace holds the finalizer "kubernetes" in its spec. The
// controller deletes everything in the namespace, as often as it takes, tells in
// the namespace's conditions what remains and why, and removes the finalizer
// when nothing does. The API servers refuse to create in terminating namespaces,
// but what they have let in before they knew may still be on its way: so the
// finalizer stays for a grace period.
package namespace

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
)

// New declares the controller.
func New() controller.Controller {
	o := &options{concurrent: 10, grace: 5 * time.Second}
	all := []string{"*"}
	return controller.Controller{
		Name:    "namespace",
		Aliases: []string{"namespace-controller"},
		Reads:   []client.Object{&corev1.Namespace{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("", []string{"namespaces/finalize", "namespaces/status"}, []string{"update"}),
			controller.Can("*", all, []string{"list", "delete", "deletecollection"}),
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.IntVar(&o.concurrent, concurrentFlag, o.concurrent, "How many namespaces are emptied at the same time.")
			fs.DurationVar(&o.grace, GraceFlag, o.grace, "The least time from a namespace's deletion to its end, in which what API servers have let into it comes to light. \"svc up\" with an etcd of its own, which no other API server uses, has 1s.")
		},
		Validate: o.validate,
		Setup:    o.setup,
	}
}

const concurrentFlag = "concurrent-namespace-syncs"

// GraceFlag is for programs that know that there is one API server only.
const GraceFlag = "namespace-deletion-grace"

type options struct {
	concurrent int
	grace      time.Duration
}

func (o *options) validate() []error {
	return append(controller.AtLeastOne(concurrentFlag, o.concurrent), controller.NotNegative(GraceFlag, o.grace)...)
}

func (o *options) setup(_ context.Context, env *controller.Env) error {
	pods, err := apiutil.GVKForObject(&corev1.Pod{}, env.Manager.GetScheme())
	if err != nil {
		return err
	}
	r := &reconciler{client: env.Client, live: env.Live, content: content{env.Metadata, env.Discovery, pods.Group}, grace: o.grace, now: env.Clock.Now}
	return controller.Run(env, controller.Options{Name: "namespace", Workers: o.concurrent}, r, controller.For(&corev1.Namespace{}, predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return e.Object.GetDeletionTimestamp() != nil },
		// Not of what the controller writes itself: it comes back after its pause.
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectNew.GetDeletionTimestamp() != nil &&
				(e.ObjectOld.GetDeletionTimestamp() == nil || e.ObjectOld.GetUID() != e.ObjectNew.GetUID())
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}))
}

// reconciler reads namespaces and everything in them; it alone writes their
// finalizers and the conditions NamespaceDeletion*, NamespaceContentRemaining
// and NamespaceFinalizersRemaining.
type reconciler struct {
	client  client.Client
	live    client.Reader
	content content
	grace   time.Duration
	now     func() time.Time
}

// Reconcile empties a namespace as far as it can be emptied now.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ns := &corev1.Namespace{}
	if err := r.client.Get(ctx, req.NamespacedName, ns); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if ns.DeletionTimestamp == nil || !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return reconcile.Result{}, nil
	}
	began := r.now()
	found, err := r.content.discovery.Since(ctx, began)
	if err != nil {
		return reconcile.Result{}, err
	}
	// What follows deletes by the namespace's name: it must be this one still.
	uid := ns.UID
	if err := r.live.Get(ctx, req.NamespacedName, ns); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if ns.UID != uid || ns.DeletionTimestamp == nil {
		return reconcile.Result{}, nil
	}
	left := r.content.delete(ctx, ns, found)
	if err := ctx.Err(); err != nil {
		return reconcile.Result{}, err
	}
	if left.nothing() {
		if end := ns.DeletionTimestamp.Add(r.grace); began.Before(end) {
			return reconcile.Result{RequeueAfter: max(end.Sub(r.now()), time.Millisecond)}, nil // to look once more
		}
		return reconcile.Result{}, r.release(ctx, ns)
	}
	if err := r.report(ctx, ns, left); err != nil {
		return reconcile.Result{}, err
	}
	pause := left.pause(ns.DeletionTimestamp.Time, r.now())
	klog.FromContext(ctx).V(4).Info("The namespace is not empty yet", "after", pause, "remaining", left.String())
	return reconcile.Result{RequeueAfter: pause}, nil
}

// report writes what is left into the conditions.
func (r *reconciler) report(ctx context.Context, ns *corev1.Namespace, left remains) error {
	updated := ns.DeepCopy()
	updated.Status.Phase = corev1.NamespaceTerminating
	if !setConditions(&updated.Status, left.conditions(), r.now()) && ns.Status.Phase == updated.Status.Phase {
		return nil
	}
	if err := r.client.Status().Update(ctx, updated); err != nil {
		return ignoreGone(fmt.Errorf("status of namespace %s: %w", ns.Name, err))
	}
	return nil
}

// release removes the finalizer. If it was the last, the namespace goes.
func (r *reconciler) release(ctx context.Context, ns *corev1.Namespace) error {
	updated := ns.DeepCopy()
	updated.Spec.Finalizers = slices.DeleteFunc(updated.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	if err := r.client.SubResource("finalize").Update(ctx, updated); err != nil {
		return ignoreGone(fmt.Errorf("finalize namespace %s: %w", ns.Name, err))
	}
	return nil
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
