package namespace

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// reconciler reads namespaces and everything in them; it alone writes their
// finalizers and the conditions NamespaceDeletion*, NamespaceContentRemaining
// and NamespaceFinalizersRemaining.
type reconciler struct {
	client   client.Client
	live     client.Reader
	content  content
	grace    time.Duration
	now      func() time.Time
	observed observed
}

// Reconcile deletes the content of a terminating namespace, and finalizes the
// namespace when it is empty.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	result, err := r.sync(ctx, req)
	if err == nil && result.RequeueAfter == 0 {
		r.observed.forget(req.Name)
	}
	return result, err
}

func (r *reconciler) sync(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ns := &corev1.Namespace{}
	if err := r.client.Get(ctx, req.NamespacedName, ns); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if ns.DeletionTimestamp == nil || !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return reconcile.Result{}, nil
	}
	began := r.now()
	since := r.observed.at(ns, began)
	found, err := r.content.discovery.Since(ctx, began)
	if err != nil {
		return reconcile.Result{}, err
	}
	// The content is deleted by the namespace's name: the namespace must not have
	// been replaced by another of the same name.
	uid := ns.UID
	if err := r.live.Get(ctx, req.NamespacedName, ns); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if ns.UID != uid || ns.DeletionTimestamp == nil {
		return reconcile.Result{}, nil
	}
	left := r.content.delete(ctx, ns.Name, found)
	if err := ctx.Err(); err != nil {
		return reconcile.Result{}, err
	}
	next := decide(ns.DeletionTimestamp.Time, since, left, began, r.now(), r.grace)
	if next.finalize {
		// A namespace that nothing else holds is deleted by that: its conditions are not written.
		if len(ns.Finalizers) > 0 || len(ns.Spec.Finalizers) > 1 {
			if err := r.report(ctx, ns, left); err != nil {
				return reconcile.Result{}, err
			}
		}
		return reconcile.Result{}, r.finalize(ctx, ns)
	}
	if next.report {
		if err := r.report(ctx, ns, left); err != nil {
			return reconcile.Result{}, err
		}
		klog.FromContext(ctx).V(4).Info("Namespace has remaining content", "namespace", klog.KObj(ns), "remaining", left.String(), "requeueAfter", next.requeueAfter)
	}
	return reconcile.Result{RequeueAfter: next.requeueAfter}, nil
}

// report writes the remaining content to the conditions, and updates ns.
func (r *reconciler) report(ctx context.Context, ns *corev1.Namespace, left remaining) error {
	phase := ns.Status.Phase
	ns.Status.Phase = corev1.NamespaceTerminating
	if !setConditions(&ns.Status, left.conditions(), r.now()) && phase == ns.Status.Phase {
		return nil
	}
	if err := r.client.Status().Update(ctx, ns); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("update status of namespace %s: %w", ns.Name, err))
	}
	return nil
}

// finalize removes the finalizer. The API server deletes the namespace when that
// was the last one.
func (r *reconciler) finalize(ctx context.Context, ns *corev1.Namespace) error {
	updated := ns.DeepCopy()
	updated.Spec.Finalizers = slices.DeleteFunc(updated.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	if err := r.client.SubResource("finalize").Update(ctx, updated); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("finalize namespace %s: %w", ns.Name, err))
	}
	return nil
}
