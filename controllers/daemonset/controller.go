// Package daemonset owns the controller of daemon sets: it runs one pod on each node
// that the pod fits, and rolls out new templates node by node. Package decide makes the
// decisions; the scripts in its testdata show them.
package daemonset

import (
	"context"
	"maps"
	"time"

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
	"svc.dev/svc/controllers/pods"
)

// New declares the controller.
func New() controller.Controller {
	o := &options{concurrent: 2}
	return controller.Controller{
		Name:    "daemonset",
		Aliases: []string{"daemonset-controller"},
		Reads:   []client.Object{&appsv1.DaemonSet{}, &appsv1.ControllerRevision{}, &corev1.Pod{}, &corev1.Node{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("apps", []string{"daemonsets/status"}, []string{"update"}),
			// To create pods and revisions with blockOwnerDeletion.
			controller.Can("apps", []string{"daemonsets/finalizers"}, []string{"update"}),
			controller.Can("apps", []string{"controllerrevisions"}, []string{"create", "patch", "delete"}),
			controller.Can("", []string{"pods"}, []string{"create", "patch", "delete"}),
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.IntVar(&o.concurrent, concurrentFlag, o.concurrent, "How many daemon sets are synced at the same time.")
		},
		Validate: func() []error { return controller.AtLeastOne(concurrentFlag, o.concurrent) },
		Setup:    o.setup,
	}
}

const concurrentFlag = "concurrent-daemonset-syncs"

// minSyncInterval is the minimum time between two syncs of a daemon set, so that one sync
// handles many nodes and pods.
const minSyncInterval = 100 * time.Millisecond

type options struct {
	concurrent int
}

func (o *options) setup(ctx context.Context, env *controller.Env) error {
	if err := env.Indexes.Need(ctx, index.ByController(&corev1.Pod{}), index.ByController(&appsv1.ControllerRevision{})); err != nil {
		return err
	}
	kind, err := env.Client.GroupVersionKindFor(&appsv1.DaemonSet{})
	if err != nil {
		return err
	}
	recorder := env.Recorder("daemonset-controller")
	r := &reconciler{
		client: env.Client, recorder: recorder, kind: kind, now: env.Clock.Now, backoff: newBackoff(env.Clock),
		control: pods.Control{Client: env.Client, Recorder: recorder},
		pods:    owned.Pods{Client: env.Client, Live: env.Live},
		history: history.History{Client: env.Client, Live: env.Live, Kind: kind},
	}
	w := watches{env.Manager.GetCache()}
	return controller.Run(env, controller.Options{Name: "daemonset", Workers: o.concurrent, MinInterval: minSyncInterval}, r,
		controller.For(&appsv1.DaemonSet{}),
		adoption.Watch(&corev1.Pod{}, kind.GroupKind(), w.adopters),
		controller.Map(&corev1.Node{}, w.all, predicate.Funcs{UpdateFunc: fitChanges}))
}

// fitChanges reports whether a node may fit other pods than before.
func fitChanges(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
	return before.Spec.Unschedulable != after.Spec.Unschedulable || !maps.Equal(before.Labels, after.Labels) ||
		!apiequality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints)
}

// watches maps events to daemon sets.
type watches struct {
	cache client.Reader
}

func (w watches) sets(ctx context.Context, options ...client.ListOption) []*appsv1.DaemonSet {
	var list appsv1.DaemonSetList
	if err := w.cache.List(ctx, &list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil // the manager stops
	}
	found := make([]*appsv1.DaemonSet, len(list.Items))
	for i := range list.Items {
		found[i] = &list.Items[i]
	}
	return found
}

// adopters returns the daemon sets that may adopt a pod.
func (w watches) adopters(ctx context.Context, pod client.Object) []reconcile.Request {
	return adoption.Matching(w.sets(ctx, client.InNamespace(pod.GetNamespace())), selector, pod)
}

// all returns all daemon sets: any of them may run a pod on a node.
func (w watches) all(ctx context.Context, _ client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, ds := range w.sets(ctx) {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(ds)})
	}
	return requests
}

// selector returns the selector of the set.
func selector(ds *appsv1.DaemonSet) (labels.Selector, error) {
	return metav1.LabelSelectorAsSelector(ds.Spec.Selector)
}
