// Package resourcequota tells in the status of ResourceQuotas how much of them is
// in use.
package resourcequota

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	library "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"svc.dev/svc/apis/quota"
	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/discovery"
)

// New declares the controller.
func New() controller.Controller {
	o := &options{concurrent: 5, resync: 5 * time.Minute}
	return controller.Controller{
		Name:    "resourcequota",
		Aliases: []string{"resourcequota-controller"},
		Reads:   []client.Object{&corev1.ResourceQuota{}, &corev1.Pod{}, &corev1.Service{}, &corev1.PersistentVolumeClaim{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("", []string{"resourcequotas/status"}, []string{"update"}),
			// A quota may count the objects of any kind.
			controller.Can("*", []string{"*"}, []string{"list", "watch"}),
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.IntVar(&o.concurrent, concurrentFlag, o.concurrent, "How many quotas are calculated at the same time.")
			fs.DurationVar(&o.resync, resyncFlag, o.resync, "How often a quota is calculated although nothing that it limits has changed; 0 is never.")
		},
		Validate: o.validate,
		Setup:    o.setup,
	}
}

const (
	concurrentFlag = "concurrent-resource-quota-syncs"
	resyncFlag     = "resource-quota-sync-period"
)

const (
	// batchPeriod is how long changes in a namespace are collected, because a sync
	// reads all of the namespace's objects.
	batchPeriod = 200 * time.Millisecond
	// unservedPause is how long it takes at most until a kind is counted that is
	// served from some time on.
	unservedPause = 30 * time.Second
	// freshness is how old the knowledge may be that a kind is not served.
	freshness = time.Second
)

type options struct {
	concurrent int
	resync     time.Duration
}

func (o *options) validate() []error {
	return append(controller.AtLeastOne(concurrentFlag, o.concurrent), controller.NotNegative(resyncFlag, o.resync)...)
}

func (o *options) setup(_ context.Context, env *controller.Env) error {
	core, err := apiutil.GVKForObject(&corev1.Pod{}, env.Manager.GetScheme())
	if err != nil {
		return err
	}
	r := &reconciler{
		client:    env.Client,
		discovery: env.Discovery,
		counters:  &counters{metadata: env.Metadata},
		core:      core.Group,
		resync:    o.resync,
		now:       env.Clock.Now,
	}
	if err := env.Manager.Add(manager.RunnableFunc(r.counters.wait)); err != nil {
		return err
	}
	m := measured{reader: env.Manager.GetCache(), evaluators: quota.Evaluators(quota.Lists{}, env.Clock.Now)}
	return controller.Run(env, controller.Options{Name: "resourcequota", Workers: o.concurrent}, r,
		controller.For(&corev1.ResourceQuota{}, predicate.Funcs{UpdateFunc: respecified}),
		m.watch(&corev1.Pod{}, "pods").Batched(batchPeriod),
		m.watch(&corev1.Service{}, "services").Batched(batchPeriod),
		m.watch(&corev1.PersistentVolumeClaim{}, "persistentvolumeclaims").Batched(batchPeriod),
		controller.Watch[reconcile.Request]{Source: source.Func(r.counters.start), BatchPeriod: batchPeriod})
}

// respecified tells whether a quota limits something else than before. A status
// is written by those who know what it should be.
func respecified(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*corev1.ResourceQuota), e.ObjectNew.(*corev1.ResourceQuota)
	return before.UID != after.UID || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		!equality.Semantic.DeepEqual(before.Spec, after.Spec)
}

// reconciler reads ResourceQuotas and what they limit; it alone writes their
// status, beside the API server's admission, which adds to the usage there what
// it lets in.
type reconciler struct {
	client    client.Client
	discovery *discovery.Discovery
	counters  *counters
	// core is the name of the core group.
	core   string
	resync time.Duration
	now    func() time.Time
}

// Reconcile calculates the usage of a quota.
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
	counted, unserved, err := r.served(ctx, q)
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
		again.in(unservedPause)
	}
	used, err := library.CalculateUsage(q.Namespace, q.Spec.Scopes, q.Spec.Hard, registry, q.Spec.ScopeSelector)
	// What could be calculated is told in any case.
	return reconcile.Result{RequeueAfter: again.after}, errors.Join(err, r.write(ctx, q, status(q, used)))
}

// status is the status of a quota. What could not be calculated stays as it was.
func status(q *corev1.ResourceQuota, used corev1.ResourceList) corev1.ResourceQuotaStatus {
	all := library.Add(q.Status.Used, nil)
	for name, amount := range used {
		all[name] = amount
	}
	return corev1.ResourceQuotaStatus{
		Hard: library.Add(q.Spec.Hard, nil),
		Used: library.Mask(all, library.ResourceNames(q.Spec.Hard)),
	}
}

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

// lists list what the evaluators measure, and note when a pod that is being
// deleted ceases to count.
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

// served are the kinds that the quota counts, as they are served now. It tells
// whether some are not served.
func (r *reconciler) served(ctx context.Context, q *corev1.ResourceQuota) (served map[countedKind]schema.GroupVersionResource, unserved bool, err error) {
	// Kinds seldom go, but one that is asked for may just have come.
	for _, age := range []time.Duration{unservedPause, freshness} {
		served, unserved = map[countedKind]schema.GroupVersionResource{}, false
		for name := range q.Spec.Hard {
			gr, alias, ok := quota.Counted(name)
			if !ok {
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

// find finds a resource that is served in namespaces and can be counted, in the
// version that it had when its group was discovered last.
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

// schedule is when to look again; 0 is never.
type schedule struct {
	after time.Duration
}

// in makes it that soon, if it is not sooner.
func (s *schedule) in(d time.Duration) {
	if s.after == 0 || d < s.after {
		s.after = d
	}
}
