package tainteviction

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/index"
)

// taints are the NoExecute taints by node, so that events of pods on other nodes
// cost nothing, with the time when each taint was added or first seen.
type taints struct {
	now func() time.Time

	mu     sync.Mutex
	byNode map[string]map[corev1.Taint]time.Time
}

// set records the NoExecute taints of a node, and reports whether they have
// changed.
func (t *taints) set(node string, all []corev1.Taint) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.byNode[node]
	after := make(map[corev1.Taint]time.Time, len(all))
	for _, taint := range all {
		key := corev1.Taint{Key: taint.Key, Value: taint.Value, Effect: taint.Effect}
		at, seen := before[key]
		switch {
		case taint.TimeAdded != nil:
			at = taint.TimeAdded.Time
		case !seen:
			at = t.now()
		}
		after[key] = at
	}
	if len(after) == 0 {
		delete(t.byNode, node)
	} else {
		t.byNode[node] = after
	}
	return !maps.EqualFunc(before, after, time.Time.Equal)
}

// added returns when the taint was added to the node, or first seen there.
func (t *taints) added(node string, taint corev1.Taint) time.Time {
	if taint.TimeAdded != nil {
		return taint.TimeAdded.Time
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, ok := t.byNode[node][taint]; ok {
		return at
	}
	return t.now()
}

// any reports whether the node has NoExecute taints.
func (t *taints) any(node string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byNode[node]) > 0
}

// watchNodes enqueues the pods of nodes whose NoExecute taints change.
func (r *reconciler) watchNodes(cache client.Reader) controller.Watch[reconcile.Request] {
	changed := func(ctx context.Context, node *corev1.Node, q controller.Queue[reconcile.Request]) {
		if !r.taints.set(node.Name, noExecute(node)) {
			return
		}
		// A pod whose event came before the taints were recorded is in this list,
		// because its event reached the cache first.
		var bound corev1.PodList
		if err := cache.List(ctx, &bound, client.MatchingFields{index.PodsByNode().Name: node.Name}, client.UnsafeDisableDeepCopy); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to list pods of tainted node", "node", klog.KObj(node))
			return
		}
		for i := range bound.Items {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&bound.Items[i])})
		}
	}
	return controller.Watch[reconcile.Request]{Object: &corev1.Node{}, Handler: handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q controller.Queue[reconcile.Request]) {
			changed(ctx, e.Object.(*corev1.Node), q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q controller.Queue[reconcile.Request]) {
			changed(ctx, e.ObjectNew.(*corev1.Node), q)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ controller.Queue[reconcile.Request]) {
			r.taints.set(e.Object.GetName(), nil)
		},
	}}
}

// watchPods enqueues pods that are bound to a tainted node, pods whose tolerations
// change there, and pods that are deleted before their eviction.
func (r *reconciler) watchPods() controller.Watch[reconcile.Request] {
	request := func(pod *corev1.Pod, q controller.Queue[reconcile.Request]) {
		key := client.ObjectKeyFromObject(pod)
		if r.taints.any(pod.Spec.NodeName) || r.evictor.IsScheduled(key) {
			q.Add(reconcile.Request{NamespacedName: key})
		}
	}
	return controller.Watch[reconcile.Request]{Object: &corev1.Pod{}, Handler: handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q controller.Queue[reconcile.Request]) {
			request(e.Object.(*corev1.Pod), q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q controller.Queue[reconcile.Request]) {
			before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
			if before.UID != after.UID || before.Spec.NodeName != after.Spec.NodeName ||
				!slices.EqualFunc(before.Spec.Tolerations, after.Spec.Tolerations, func(a, b corev1.Toleration) bool { return equality.Semantic.DeepEqual(a, b) }) {
				request(after, q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q controller.Queue[reconcile.Request]) {
			if key := client.ObjectKeyFromObject(e.Object); r.evictor.IsScheduled(key) {
				q.Add(reconcile.Request{NamespacedName: key})
			}
		},
	}}
}
