// Package statefulset owns the controller of stateful sets: it creates and deletes
// their pods in order, gives each a stable name and its own claims, and rolls out
// new templates. Package decide makes the decisions; the scripts in its testdata
// show them.
package statefulset

import (
	"context"
	"strings"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/adoption"
	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/history"
	"svc.dev/svc/controllers/index"
	"svc.dev/svc/controllers/owned"
)

// New declares the controller.
func New() controller.Controller {
	o := &options{concurrent: 5}
	return controller.Controller{
		Name:    "statefulset",
		Aliases: []string{"statefulset-controller"},
		Reads:   []client.Object{&appsv1.StatefulSet{}, &appsv1.ControllerRevision{}, &corev1.Pod{}, &corev1.PersistentVolumeClaim{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("apps", []string{"statefulsets/status"}, []string{"update"}),
			// To create pods, claims and revisions with blockOwnerDeletion.
			controller.Can("apps", []string{"statefulsets/finalizers"}, []string{"update"}),
			// To make a pod the owner of a claim that is deleted with it.
			controller.Can("", []string{"pods/finalizers"}, []string{"update"}),
			controller.Can("apps", []string{"controllerrevisions"}, []string{"create", "patch", "delete"}),
			controller.Can("", []string{"pods"}, []string{"create", "patch", "delete"}),
			controller.Can("", []string{"persistentvolumeclaims"}, []string{"create", "patch"}),
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.IntVar(&o.concurrent, concurrentFlag, o.concurrent, "How many stateful sets are synced at the same time.")
		},
		Validate: func() []error { return controller.AtLeastOne(concurrentFlag, o.concurrent) },
		Setup:    o.setup,
	}
}

const concurrentFlag = "concurrent-statefulset-syncs"

type options struct {
	concurrent int
}

func (o *options) setup(ctx context.Context, env *controller.Env) error {
	if err := env.Indexes.Need(ctx, index.ByController(&corev1.Pod{}), index.ByController(&appsv1.ControllerRevision{})); err != nil {
		return err
	}
	kind, err := env.Client.GroupVersionKindFor(&appsv1.StatefulSet{})
	if err != nil {
		return err
	}
	podKind, err := env.Client.GroupVersionKindFor(&corev1.Pod{})
	if err != nil {
		return err
	}
	r := &reconciler{
		client: env.Client, recorder: env.Recorder("statefulset-controller"), kind: kind, podKind: podKind, now: env.Clock.Now,
		pods:    owned.Pods{Client: env.Client, Live: env.Live},
		history: history.History{Client: env.Client, Live: env.Live, Kind: kind},
		backoff: newBackoff(env.Clock), discovery: env.Discovery,
	}
	w := watches{env.Manager.GetCache()}
	return controller.Run(env, controller.Options{Name: "statefulset", Workers: o.concurrent}, r,
		controller.For(&appsv1.StatefulSet{}),
		adoption.Watch(&corev1.Pod{}, kind.GroupKind(), w.adopters),
		controller.Map(&corev1.PersistentVolumeClaim{}, w.claimants, releases()))
}

// releases passes the events of claims after which a pod may be created: a claim is gone,
// or another client has changed its owners.
func releases() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld, e.ObjectNew
			return before.GetUID() != after.GetUID() || (before.GetDeletionTimestamp() == nil) != (after.GetDeletionTimestamp() == nil) ||
				!apiequality.Semantic.DeepEqual(before.GetOwnerReferences(), after.GetOwnerReferences())
		},
	}
}

// watches maps events to stateful sets.
type watches struct {
	cache client.Reader
}

func (w watches) sets(ctx context.Context, namespace string) []*appsv1.StatefulSet {
	var list appsv1.StatefulSetList
	if err := w.cache.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil // the manager stops
	}
	sets := make([]*appsv1.StatefulSet, len(list.Items))
	for i := range list.Items {
		sets[i] = &list.Items[i]
	}
	return sets
}

// adopters returns the stateful sets that may adopt a pod.
func (w watches) adopters(ctx context.Context, pod client.Object) []reconcile.Request {
	return adoption.Matching(w.sets(ctx, pod.GetNamespace()), selector, pod)
}

// claimants returns the stateful sets that may wait for a claim.
func (w watches) claimants(ctx context.Context, claim client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, set := range w.sets(ctx, claim.GetNamespace()) {
		for i := range set.Spec.VolumeClaimTemplates {
			if strings.HasPrefix(claim.GetName(), set.Spec.VolumeClaimTemplates[i].Name+"-"+set.Name+"-") {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(set)})
				break
			}
		}
	}
	return requests
}

// selector returns the selector of the set.
func selector(set *appsv1.StatefulSet) (labels.Selector, error) {
	return metav1.LabelSelectorAsSelector(set.Spec.Selector)
}
