// Package resourceclaim owns the controller of resource claims, which allocate devices: it
// makes the claims of pods from templates, and ends the reservations of pods that have
// ended.
package resourceclaim

import (
	"context"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/index"
)

// New declares the controller.
func New() controller.Controller {
	o := &options{concurrent: 50}
	return controller.Controller{
		Name:    "resourceclaim",
		Aliases: []string{"resource-claim", "resourceclaim-controller"},
		Newer:   true,
		Reads:   []client.Object{&corev1.Pod{}, &resourcev1.ResourceClaim{}, &resourcev1.ResourceClaimTemplate{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("resource.k8s.io", []string{"resourceclaims"}, []string{"create", "patch", "delete"}),
			// The last one is what an API server of 1.36 and later asks for.
			controller.Can("resource.k8s.io", []string{"resourceclaims/status", "resourceclaims/binding"}, []string{"patch"}),
			controller.Can("", []string{"pods/status"}, []string{"patch"}),
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.IntVar(&o.concurrent, concurrentFlag, o.concurrent, "How many pods with resource claims, and how many resource claims, are synced at the same time.")
		},
		Validate: func() []error { return controller.AtLeastOne(concurrentFlag, o.concurrent) },
		Setup:    o.setup,
	}
}

const concurrentFlag = "concurrent-resourceclaim-syncs"

type options struct {
	concurrent int
}

func (o *options) setup(ctx context.Context, env *controller.Env) error {
	if err := env.Indexes.Need(ctx, podsByClaim(), podsByTemplate(), index.ByController(&resourcev1.ResourceClaim{})); err != nil {
		return err
	}
	w := watches{env.Manager.GetCache()}
	hasClaims := predicate.NewPredicateFuncs(func(obj client.Object) bool { return len(obj.(*corev1.Pod).Spec.ResourceClaims) > 0 })
	err := controller.Run(env, controller.Options{Name: "resourceclaim-pods", Workers: o.concurrent},
		&podReconciler{client: env.Client, recorder: env.Recorder("resource_claim")},
		controller.For(&corev1.Pod{}, hasClaims),
		controller.Map(&resourcev1.ResourceClaim{}, w.podsOf(podsByClaim())),
		controller.Map(&resourcev1.ResourceClaimTemplate{}, w.podsOf(podsByTemplate()), predicate.Funcs{
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		}))
	if err != nil {
		return err
	}
	return controller.Run(env, controller.Options{Name: "resourceclaim-claims", Workers: o.concurrent},
		&claimReconciler{client: env.Client, live: env.Live},
		controller.For(&resourcev1.ResourceClaim{}),
		controller.Map(&corev1.Pod{}, w.claimsOfEndedPod, predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return isDone(e.Object.(*corev1.Pod)) },
			UpdateFunc: func(e event.UpdateEvent) bool {
				return isDone(e.ObjectNew.(*corev1.Pod)) || e.ObjectOld.GetUID() != e.ObjectNew.GetUID()
			},
		}))
}

// podsByClaim finds pods of a namespace by the names of their resource claims, as far as
// they are known.
func podsByClaim() controller.Index {
	return controller.Index{Name: "resource-claims", Object: &corev1.Pod{}, Values: func(obj client.Object) []string {
		return claimNames(obj.(*corev1.Pod))
	}}
}

// podsByTemplate finds pods of a namespace by the templates of their resource claims.
func podsByTemplate() controller.Index {
	return controller.Index{Name: "resource-claim-templates", Object: &corev1.Pod{}, Values: func(obj client.Object) []string {
		var names []string
		for _, c := range obj.(*corev1.Pod).Spec.ResourceClaims {
			if c.ResourceClaimTemplateName != nil {
				names = append(names, *c.ResourceClaimTemplateName)
			}
		}
		return names
	}}
}

// claimNames returns the names of a pod's claims, also that of its extended resources, but for
// those that are still to be made.
func claimNames(pod *corev1.Pod) []string {
	var names []string
	for name := range resourceclaim.PodClaims(pod) {
		names = append(names, name)
	}
	return names
}

// watches maps events to pods.
type watches struct {
	cache client.Reader
}

// podsOf returns a function that returns the pods which an index finds by an object's name.
func (w watches) podsOf(by controller.Index) func(context.Context, client.Object) []reconcile.Request {
	return func(ctx context.Context, obj client.Object) []reconcile.Request {
		var list corev1.PodList
		err := w.cache.List(ctx, &list, client.InNamespace(obj.GetNamespace()), client.MatchingFields{by.Name: obj.GetName()}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return nil // the manager stops
		}
		requests := make([]reconcile.Request, len(list.Items))
		for i := range list.Items {
			requests[i].NamespacedName = client.ObjectKeyFromObject(&list.Items[i])
		}
		return requests
	}
}

// claimsOfEndedPod returns the claims that a pod no longer needs: those that it names, and those
// that were made for it. One that was made for its extended resources may not be named yet.
func (w watches) claimsOfEndedPod(ctx context.Context, pod client.Object) []reconcile.Request {
	names := sets.New(claimNames(pod.(*corev1.Pod))...)
	var owned resourcev1.ResourceClaimList
	by := client.MatchingFields{index.ByController(&resourcev1.ResourceClaim{}).Name: string(pod.GetUID())}
	if err := w.cache.List(ctx, &owned, client.InNamespace(pod.GetNamespace()), by, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the manager stops
	}
	for i := range owned.Items {
		names.Insert(owned.Items[i].Name)
	}
	requests := make([]reconcile.Request, 0, len(names))
	for name := range names {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: pod.GetNamespace(), Name: name}})
	}
	return requests
}
