// Package nodelifecycle finds nodes that give no sign of life or are not well,
// keeps new pods away from them with taints, and has their pods evicted.
//
// The conditions of a dead node become Unknown, and its pods not ready. Package
// fleet decides what the health of nodes means and when pods are evicted.
//
// Nothing is looked through from time to time. A renewed lease sets a time in
// memory; a node is looked at when something about it changes, and at the moment
// at which it will have been silent for too long.
package nodelifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/index"
	"svc.dev/svc/controllers/nodelifecycle/fleet"
	"svc.dev/svc/controllers/pods"
)

// New declares the controller.
func New() controller.Controller {
	o := newOptions()
	return controller.Controller{
		Name:    "nodelifecycle",
		Aliases: []string{"node-lifecycle-controller"},
		Reads:   []client.Object{&corev1.Node{}, &coordinationv1.Lease{}, &corev1.Pod{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("", []string{"nodes"}, []string{"patch"}),
			controller.Can("", []string{"nodes/status", "pods/status"}, []string{"update"}),
		},
		Flags:    o.addFlags,
		Validate: o.validate,
		Setup:    o.setup,
	}
}

const workers = 8

func (o *options) setup(ctx context.Context, env *controller.Env) error {
	if err := env.Indexes.Need(ctx, index.PodsByNode()); err != nil {
		return err
	}
	r := &reconciler{
		client: env.Client, recorder: env.Recorder("node-controller"), now: env.Clock.Now,
		fleet: fleet.New(o.config(), env.Clock.Now()),
	}
	trigger := &controller.Trigger[reconcile.Request]{}
	r.enqueue = trigger.Enqueue
	return controller.Run(env, controller.Options{Name: "nodelifecycle", Workers: workers}, r,
		trigger.Watch(), r.watchNodes(), r.watchLeases())
}

// reconciler reads nodes, their leases and pods. It alone writes conditions of
// nodes with the status Unknown, the taints of nodes' conditions, of unready
// nodes and of cordoned ones, and the former names of the labels of system and
// architecture. It makes pods of dead nodes not ready.
type reconciler struct {
	client   client.Client
	recorder record.EventRecorder
	now      func() time.Time
	// enqueue requests the sync of other nodes.
	enqueue func(...reconcile.Request)

	mu    sync.Mutex
	fleet *fleet.Fleet
}

// Reconcile looks at a node.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	node := &corev1.Node{}
	err := r.client.Get(ctx, req.NamespacedName, node)
	if apierrors.IsNotFound(err) {
		r.gone(req.Name)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	v := r.look(node)
	if v.New {
		r.recorder.Eventf(node, corev1.EventTypeNormal, "RegisteredNode", "Node %s event: Registered Node %s in Controller", node.Name, node.Name)
	}
	if v.Dead {
		if err := r.declareDead(ctx, node); err != nil {
			return reconcile.Result{}, err
		}
		v = r.look(node)
	}
	if err := r.mark(ctx, node, v.Taint); err != nil {
		return reconcile.Result{}, err
	}
	if readiness(node) == corev1.ConditionUnknown {
		if err := r.markPods(ctx, node); err != nil {
			return reconcile.Result{}, err
		}
	}
	if v.Again.IsZero() {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: max(v.Again.Sub(r.now()), time.Millisecond)}, nil
}

// look asks the fleet about a node, and requests those on which that bears.
func (r *reconciler) look(node *corev1.Node) fleet.Verdict {
	r.mu.Lock()
	v := r.fleet.Look(node, r.now())
	woken := r.fleet.Woken()
	r.mu.Unlock()
	r.enqueue(requests(woken...)...)
	return v
}

func requests(names ...string) []reconcile.Request {
	var all []reconcile.Request
	for _, name := range names {
		all = append(all, reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
	}
	return all
}

func request(q controller.Queue[reconcile.Request], names ...string) {
	for _, r := range requests(names...) {
		q.Add(r)
	}
}

// gone forgets a node.
func (r *reconciler) gone(name string) {
	r.mu.Lock()
	uid := r.fleet.Gone(name)
	r.mu.Unlock()
	if uid == "" {
		return
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
	r.recorder.Eventf(node, corev1.EventTypeNormal, "RemovingNode", "Node %s event: Removing Node %s from Controller", name, name)
}

// declareDead makes Unknown what the node has posted.
func (r *reconciler) declareDead(ctx context.Context, node *corev1.Node) error {
	ready := readiness(node)
	setUnknown(node, r.now())
	if err := r.client.Status().Update(ctx, node); err != nil {
		return fmt.Errorf("status of node %s: %w", node.Name, err)
	}
	klog.FromContext(ctx).Info("A node gives no sign of life", "node", node.Name)
	if ready == corev1.ConditionTrue {
		r.recorder.Eventf(node, corev1.EventTypeNormal, "NodeNotReady", "Node %s status is now: NodeNotReady", node.Name)
	}
	return nil
}

// mark sets the node's taints and labels.
func (r *reconciler) mark(ctx context.Context, node *corev1.Node, evicting string) error {
	patch := client.MergeFromWithOptions(node.DeepCopy(), client.MergeFromWithOptimisticLock{})
	labelled := setLabels(node)
	if !setTaints(node, evicting, r.now()) && !labelled {
		return nil
	}
	if err := r.client.Patch(ctx, node, patch); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("taints of node %s: %w", node.Name, err))
	}
	klog.FromContext(ctx).V(2).Info("Marked a node", "node", node.Name, "taints", node.Spec.Taints)
	return nil
}

// markPods makes the pods of a dead node not ready.
func (r *reconciler) markPods(ctx context.Context, node *corev1.Node) error {
	var theirs corev1.PodList
	if err := r.client.List(ctx, &theirs, client.MatchingFields{index.PodsByNode().Name: node.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	var errs []error
	for i := range theirs.Items {
		if !pods.IsReady(&theirs.Items[i]) {
			continue
		}
		pod := theirs.Items[i].DeepCopy()
		ready := *pods.Condition(pod, corev1.PodReady)
		ready.Status = corev1.ConditionFalse
		pods.SetCondition(pod, ready, r.now())
		if err := r.client.Status().Update(ctx, pod); err != nil {
			errs = append(errs, client.IgnoreNotFound(fmt.Errorf("status of pod %s/%s: %w", pod.Namespace, pod.Name, err)))
			continue
		}
		r.recorder.Event(pod, corev1.EventTypeWarning, "NodeNotReady", "Node is not ready")
	}
	return errors.Join(errs...)
}
