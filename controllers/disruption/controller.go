// Package disruption owns the controller of PodDisruptionBudgets: it computes the
// status from which the eviction subresource of pods takes disruptions.
package disruption

import (
	"context"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
)

// New declares the controller.
func New() controller.Controller {
	// A sync may wait for the API server to return the scale of a custom resource.
	o := &options{concurrent: 4}
	return controller.Controller{
		Name:    "disruption",
		Aliases: []string{"disruption-controller"},
		Reads: []client.Object{
			&policyv1.PodDisruptionBudget{}, &corev1.Pod{},
			&appsv1.Deployment{}, &appsv1.ReplicaSet{}, &appsv1.StatefulSet{}, &corev1.ReplicationController{},
		},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("policy", []string{"poddisruptionbudgets/status"}, []string{"update"}),
			controller.Can("", []string{"pods/status"}, []string{"update"}),
			// Custom resources can control pods, too.
			controller.Can("*", []string{"*/scale"}, []string{"get"}),
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.IntVar(&o.concurrent, concurrentFlag, o.concurrent, "How many pod disruption budgets are synced at the same time.")
		},
		Validate: func() []error { return controller.AtLeastOne(concurrentFlag, o.concurrent) },
		Setup:    o.setup,
	}
}

const concurrentFlag = "concurrent-disruption-syncs"

type options struct{ concurrent int }

func (o *options) setup(_ context.Context, env *controller.Env) error {
	r := &reconciler{
		client: env.Client,
		events: env.Recorder("controllermanager"),
		scales: scales{env.Client, env.Discovery},
		now:    env.Clock.Now,
	}
	cached := env.Manager.GetCache()
	err := controller.Run(env, controller.Options{Name: "disruption", Workers: o.concurrent}, r,
		controller.For(&policyv1.PodDisruptionBudget{}),
		controller.Map(&corev1.Pod{}, r.budgetsOf(cached), predicate.Funcs{UpdateFunc: podChanged}),
		controller.Map(&appsv1.Deployment{}, budgetsIn(cached), scaled()),
		controller.Map(&appsv1.ReplicaSet{}, budgetsIn(cached), scaled()),
		controller.Map(&appsv1.StatefulSet{}, budgetsIn(cached), scaled()),
		controller.Map(&corev1.ReplicationController{}, budgetsIn(cached), scaled()))
	if err != nil {
		return err
	}
	return controller.Run(env, controller.Options{Name: "disruption-target", Workers: 1}, &targets{client: env.Client, now: env.Clock.Now},
		controller.For(&corev1.Pod{}, predicate.NewPredicateFuncs(func(obj client.Object) bool {
			return disruptionTargetSince(obj.(*corev1.Pod)) != nil
		})))
}

// budgetsOf returns the budgets that select a pod.
func (r *reconciler) budgetsOf(reader client.Reader) func(context.Context, client.Object) []reconcile.Request {
	return func(ctx context.Context, obj client.Object) []reconcile.Request {
		requests := requests(ctx, reader, obj.GetNamespace(), func(b *policyv1.PodDisruptionBudget) bool {
			selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
			return err == nil && selector.Matches(labels.Set(obj.GetLabels()))
		})
		if len(requests) > 1 {
			r.events.Eventf(obj, corev1.EventTypeWarning, "MultiplePodDisruptionBudgets", "Pod %q/%q matches multiple PodDisruptionBudgets.  Chose %q arbitrarily.",
				obj.GetNamespace(), obj.GetName(), requests[0].Name)
		}
		return requests
	}
}

// budgetsIn returns the budgets of a namespace that depend on the scale of
// workloads.
func budgetsIn(reader client.Reader) func(context.Context, client.Object) []reconcile.Request {
	return func(ctx context.Context, obj client.Object) []reconcile.Request {
		return requests(ctx, reader, obj.GetNamespace(), dependsOnScale)
	}
}

func requests(ctx context.Context, reader client.Reader, namespace string, selects func(*policyv1.PodDisruptionBudget) bool) []reconcile.Request {
	var list policyv1.PodDisruptionBudgetList
	if err := reader.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil // the manager stops
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if b := &list.Items[i]; selects(b) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)})
		}
	}
	return requests
}

// podChanged reports whether an update of a pod can change the status of a budget.
func podChanged(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
	return before.UID != after.UID || ready(before) != ready(after) ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences)
}

// scaled passes updates that can change the scale or the owner of a workload.
func scaled() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
			!equality.Semantic.DeepEqual(e.ObjectOld.GetOwnerReferences(), e.ObjectNew.GetOwnerReferences())
	}}
}
