// Package ttl owns the controller of the annotation node.alpha.kubernetes.io/ttl: for how
// many seconds the agent of a node may use the secrets and config maps that it has
// read, which is the longer the more nodes there are.
package ttl

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
)

// New declares the controller.
func New() controller.Controller {
	return controller.Controller{
		Name:        "ttl",
		Aliases:     []string{"ttl-controller"},
		Reads:       []client.Object{&corev1.Node{}},
		Permissions: []rbacv1.PolicyRule{controller.Can("", []string{"nodes"}, []string{"patch"})},
		Setup: func(_ context.Context, env *controller.Env) error {
			r := &reconciler{client: env.Client}
			nodes := handler.TypedFuncs[client.Object, reconcile.Request]{
				CreateFunc: func(_ context.Context, e event.CreateEvent, q controller.Queue[reconcile.Request]) {
					r.count(1)
					q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.Object)})
				},
				UpdateFunc: func(_ context.Context, e event.UpdateEvent, q controller.Queue[reconcile.Request]) {
					q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.ObjectNew)})
				},
				DeleteFunc: func(context.Context, event.DeleteEvent, controller.Queue[reconcile.Request]) { r.count(-1) },
			}
			return controller.Run(env, controller.Options{Name: "ttl", Workers: 1}, r, controller.Watch[reconcile.Request]{Object: &corev1.Node{}, Handler: nodes})
		},
	}
}

// annotation is the annotation of nodes.
const annotation = "node.alpha.kubernetes.io/ttl"

// boundary is a number of seconds for clusters of at least min nodes, until there are
// fewer, and at most max nodes, until there are more.
type boundary struct{ min, max, seconds int }

// boundaries overlap, so that a change of one node does not change all annotations.
func boundaries() []boundary {
	return []boundary{{0, 100, 0}, {90, 500, 15}, {450, 1000, 30}, {900, 2000, 60}, {1800, 1 << 30, 300}}
}

// next returns the boundary after a change of the number of nodes.
func next(step, nodes int) int {
	all := boundaries()
	for step+1 < len(all) && nodes > all[step].max {
		step++
	}
	for step > 0 && nodes < all[step].min {
		step--
	}
	return step
}

// reconciler reads nodes, and alone writes the annotation.
type reconciler struct {
	client client.Client

	mu          sync.Mutex
	nodes, step int
}

func (r *reconciler) count(change int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nodes += change
	r.step = next(r.step, r.nodes)
}

// Reconcile sets the annotation of a node.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	node := &corev1.Node{}
	if err := r.client.Get(ctx, req.NamespacedName, node, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	r.mu.Lock()
	wanted := strconv.Itoa(boundaries()[r.step].seconds)
	r.mu.Unlock()
	if node.Annotations[annotation] == wanted {
		return reconcile.Result{}, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": node.UID, "annotations": map[string]string{annotation: wanted}}})
	if err != nil {
		return reconcile.Result{}, err
	}
	target := &corev1.Node{}
	target.Name = node.Name
	if err := r.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(fmt.Errorf("annotation of node %s: %w", node.Name, err))
	}
	return reconcile.Result{}, nil
}
