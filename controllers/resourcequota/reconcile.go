package resourcequota

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	library "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/apis/quota"
	"svc.dev/svc/controllers/discovery"
)

// reconciler reads ResourceQuotas and the objects that they limit. It writes their
// status, as does the API server's admission, which adds the usage of every object
// that it admits.
type reconciler struct {
	client    client.Client
	discovery *discovery.Discovery
	counters  *counters
	// claims is set if resource claims are served, and extended if their devices count as
	// extended resources, too.
	claims, extended bool
	// core is the name of the core group in the group domain.
	core   string
	resync time.Duration
	now    func() time.Time
}

// Reconcile calculates the usage of a quota and writes it to its status.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	q := &corev1.ResourceQuota{}
	err := r.client.Get(ctx, req.NamespacedName, q)
	if apierrors.IsNotFound(err) || err == nil && q.DeletionTimestamp != nil {
		r.counters.want(req.NamespacedName, nil)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	again := schedule{after: r.resync}
	registry := generic.NewRegistry(quota.Evaluators(r.lists(ctx, &again), r.now))
	if r.claims {
		registry.Add(quota.ResourceClaims(r.listClaims(ctx), r.devices(ctx), r.now))
	}
	counted, unserved, err := r.served(ctx, q, registry)
	if err != nil {
		return reconcile.Result{}, err
	}
	wanted := map[schema.GroupVersionResource]bool{}
	for kind, gvr := range counted {
		wanted[gvr] = true
		registry.Add(generic.NewObjectCountEvaluator(kind.GroupResource, func(namespace string) ([]runtime.Object, error) {
			return r.counters.list(ctx, gvr, namespace)
		}, kind.alias))
	}
	r.counters.want(req.NamespacedName, wanted)
	if unserved {
		again.in(unservedResync)
	}
	used, err := library.CalculateUsage(q.Namespace, q.Spec.Scopes, q.Spec.Hard, registry, q.Spec.ScopeSelector)
	// After an error, used has the resources that could be calculated.
	calculated := status(q, used)
	if lowers(q.Status.Used, calculated.Used) {
		again.in(recount)
	}
	return reconcile.Result{RequeueAfter: again.after}, errors.Join(err, r.write(ctx, q, calculated))
}

// write writes the status if it has changed.
func (r *reconciler) write(ctx context.Context, q *corev1.ResourceQuota, status corev1.ResourceQuotaStatus) error {
	if library.Equals(status.Hard, q.Status.Hard) && library.Equals(status.Used, q.Status.Used) {
		return nil
	}
	q = q.DeepCopy()
	q.Status = status
	if err := r.client.Status().Update(ctx, q); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("status of quota %s/%s: %w", q.Namespace, q.Name, err)
	}
	return nil
}

// lists returns the lists of the evaluators. They make again the time when a pod
// that is being deleted ceases to count.
func (r *reconciler) lists(ctx context.Context, again *schedule) quota.Lists {
	return quota.Lists{
		Pods: func(namespace string) ([]runtime.Object, error) {
			pods := &corev1.PodList{}
			err := r.client.List(ctx, pods, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
			now := r.now()
			for i := range pods.Items {
				if end, ends := quota.PodEnds(&pods.Items[i]); ends && !end.Before(now) {
					again.in(end.Sub(now) + time.Millisecond)
				}
			}
			return objects[*corev1.Pod](pods.Items), err
		},
		Services: func(namespace string) ([]runtime.Object, error) {
			services := &corev1.ServiceList{}
			err := r.client.List(ctx, services, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
			return objects[*corev1.Service](services.Items), err
		},
		PersistentVolumeClaims: func(namespace string) ([]runtime.Object, error) {
			claims := &corev1.PersistentVolumeClaimList{}
			err := r.client.List(ctx, claims, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
			return objects[*corev1.PersistentVolumeClaim](claims.Items), err
		},
	}
}

// objects returns the items as objects.
func objects[P interface {
	*T
	runtime.Object
}, T any](items []T) []runtime.Object {
	list := make([]runtime.Object, len(items))
	for i := range items {
		list[i] = P(&items[i])
	}
	return list
}

// served returns those of the resources that the quota counts, and that have no evaluator,
// which are served, and reports whether some are not.
func (r *reconciler) served(ctx context.Context, q *corev1.ResourceQuota, evaluated library.Registry) (served map[countedKind]schema.GroupVersionResource, unserved bool, err error) {
	// Resources are seldom removed, but a missing one may just have been added.
	for _, age := range []time.Duration{unservedResync, freshness} {
		served, unserved = map[countedKind]schema.GroupVersionResource{}, false
		for name := range q.Spec.Hard {
			gr, alias, ok := quota.Counted(name)
			if !ok || evaluated.Get(gr) != nil {
				continue
			}
			found, err := r.discovery.Since(ctx, r.now().Add(-age))
			if err != nil {
				return nil, false, err
			}
			if gvr, ok := r.find(found, gr); ok {
				served[countedKind{gr, alias}] = gvr
			} else {
				unserved = true
			}
		}
		if !unserved {
			break
		}
	}
	return served, unserved, nil
}

// find returns a namespaced resource that can be counted, in the version of the
// last successful discovery of its group.
func (r *reconciler) find(s discovery.Snapshot, gr schema.GroupResource) (schema.GroupVersionResource, bool) {
	if gr.Group == "" {
		gr.Group = r.core
	}
	all := s.Resources
	for _, failure := range s.Failed {
		all = append(all[:len(all):len(all)], failure.Last...)
	}
	for _, resource := range all {
		if resource.GroupResource() == gr && resource.Namespaced && resource.Can("create", "list", "watch", "delete") {
			return resource.GroupVersionResource, true
		}
	}
	return schema.GroupVersionResource{}, false
}
