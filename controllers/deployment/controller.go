// Package deployment rolls out deployments: it creates a replica set for each pod
// template, and scales the old ones down and the new one up.
package deployment

import (
	"context"
	"time"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/adoption"
	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/index"
	"svc.dev/svc/controllers/pods"
)

// New declares the controller.
func New() controller.Controller {
	// As many as replica sets; see there.
	o := &options{concurrent: 10}
	return controller.Controller{
		Name:    "deployment",
		Aliases: []string{"deployment-controller"},
		Reads:   []client.Object{&appsv1.Deployment{}, &appsv1.ReplicaSet{}, &corev1.Pod{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("apps", []string{"deployments", "deployments/status"}, []string{"update"}),
			controller.Can("apps", []string{"deployments/finalizers"}, []string{"update"}),
			controller.Can("apps", []string{"replicasets"}, []string{"create", "patch", "delete"}),
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.IntVar(&o.concurrent, concurrentFlag, o.concurrent, "How many deployments are synced at the same time.")
		},
		Validate: func() []error { return controller.AtLeastOne(concurrentFlag, o.concurrent) },
		Setup:    o.setup,
	}
}

const concurrentFlag = "concurrent-deployment-syncs"

type options struct {
	concurrent int
}

// minSyncInterval is the minimum time between two syncs of a deployment, so that
// one sync handles many events of its replica sets.
const minSyncInterval = 100 * time.Millisecond

func (o *options) setup(ctx context.Context, env *controller.Env) error {
	if err := env.Indexes.Need(ctx, index.ByController(&appsv1.ReplicaSet{}), index.ByController(&corev1.Pod{})); err != nil {
		return err
	}
	gvk, err := env.Client.GroupVersionKindFor(&appsv1.Deployment{})
	if err != nil {
		return err
	}
	r := &reconciler{client: env.Client, live: env.Live, recorder: env.Recorder("deployment-controller"), gvk: gvk, now: env.Clock.Now}
	w := watcher{env.Manager.GetCache()}
	return controller.Run(env, controller.Options{Name: "deployment", Workers: o.concurrent, MinInterval: minSyncInterval}, r,
		controller.For(&appsv1.Deployment{}),
		adoption.Watch(&appsv1.ReplicaSet{}, gvk.GroupKind(), w.adopters),
		controller.Map(&corev1.Pod{}, w.recreated, predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
			UpdateFunc: func(e event.UpdateEvent) bool {
				return pods.IsTerminal(e.ObjectNew.(*corev1.Pod)) && !pods.IsTerminal(e.ObjectOld.(*corev1.Pod))
			},
		}))
}

// watcher maps events to deployments.
type watcher struct {
	cache client.Reader
}

// adopters returns the deployments that may adopt a replica set.
func (w watcher) adopters(ctx context.Context, rs client.Object) []reconcile.Request {
	var list appsv1.DeploymentList
	if err := w.cache.List(ctx, &list, client.InNamespace(rs.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		return nil // the manager stops
	}
	deployments := make([]*appsv1.Deployment, len(list.Items))
	for i := range list.Items {
		deployments[i] = &list.Items[i]
	}
	return adoption.Matching(deployments, selector, rs)
}

// recreated returns the deployment of a terminated pod if its strategy is
// Recreate, because that waits until the old pods have terminated.
func (w watcher) recreated(ctx context.Context, pod client.Object) []reconcile.Request {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		return nil
	}
	var rs appsv1.ReplicaSet
	key := client.ObjectKey{Namespace: pod.GetNamespace(), Name: ref.Name}
	if err := w.cache.Get(ctx, key, &rs, client.UnsafeDisableDeepCopy); err != nil || rs.UID != ref.UID {
		return nil // no replica set controls the pod, or it was deleted
	}
	if ref = metav1.GetControllerOfNoCopy(&rs); ref == nil {
		return nil
	}
	var d appsv1.Deployment
	key.Name = ref.Name
	if err := w.cache.Get(ctx, key, &d, client.UnsafeDisableDeepCopy); err != nil || d.UID != ref.UID {
		return nil
	}
	if d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// selector returns the selector of the deployment.
func selector(d *appsv1.Deployment) (labels.Selector, error) {
	return metav1.LabelSelectorAsSelector(d.Spec.Selector)
}
