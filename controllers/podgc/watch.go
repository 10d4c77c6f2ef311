package podgc

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"svc.dev/svc/controllers/controller"
)

// watcher enqueues requests for the few events after which a pod may have to be
// deleted. It keeps the names of the nodes and the number of terminated pods in
// memory, so that all other events cost nothing.
type watcher struct {
	threshold int

	mu         sync.Mutex
	nodes      map[string]bool
	terminated int
}

// terminatedBatchPeriod bounds how often the terminated pods are listed, however
// many pods terminate.
const terminatedBatchPeriod = time.Second

// terminatedPods enqueues the check of terminated pods when there are more than
// the threshold.
func (w *watcher) terminatedPods() controller.Watch[request] {
	return podEvents(func(q controller.Queue[request], before, after *corev1.Pod) {
		w.mu.Lock()
		growth := terminatedGrowth(before, after)
		w.terminated += growth
		tooMany := w.threshold > 0 && w.terminated > w.threshold
		w.mu.Unlock()
		if tooMany && growth > 0 {
			q.Add(request{})
		}
	}).Batched(terminatedBatchPeriod)
}

// pods enqueues pods that begin to be deleted, and the nodes of pods that are
// bound to a node that does not exist.
func (w *watcher) pods() controller.Watch[request] {
	return podEvents(func(q controller.Queue[request], before, after *corev1.Pod) {
		if after == nil {
			return
		}
		node := after.Spec.NodeName
		w.mu.Lock()
		orphaned := node != "" && !w.nodes[node]
		w.mu.Unlock()
		if orphaned && (before == nil || before.Spec.NodeName != node) {
			q.Add(request{node: node})
		}
		if after.DeletionTimestamp != nil && (before == nil || before.DeletionTimestamp == nil) {
			q.Add(request{pod: client.ObjectKeyFromObject(after)})
		}
	})
}

// podEvents calls on with a pod before and after each event; nil is a pod that
// does not exist.
func podEvents(on func(q controller.Queue[request], before, after *corev1.Pod)) controller.Watch[request] {
	return controller.Watch[request]{Object: &corev1.Pod{}, Handler: handler.TypedFuncs[client.Object, request]{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q controller.Queue[request]) {
			on(q, nil, e.Object.(*corev1.Pod))
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q controller.Queue[request]) {
			on(q, e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod))
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q controller.Queue[request]) {
			on(q, e.Object.(*corev1.Pod), nil)
		},
	}}
}

// nodeEvents enqueues nodes that are deleted or go out of service.
func (w *watcher) nodeEvents() controller.Watch[request] {
	return controller.Watch[request]{Object: &corev1.Node{}, Handler: handler.TypedFuncs[client.Object, request]{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q controller.Queue[request]) {
			w.node(q, nil, e.Object.(*corev1.Node))
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q controller.Queue[request]) {
			w.node(q, e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node))
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q controller.Queue[request]) {
			w.mu.Lock()
			delete(w.nodes, e.Object.GetName())
			w.mu.Unlock()
			q.Add(request{node: e.Object.GetName()})
		},
	}}
}

// node handles a node that is created or updated; before is nil if it is new.
func (w *watcher) node(q controller.Queue[request], before, after *corev1.Node) {
	if before == nil {
		w.mu.Lock()
		w.nodes[after.Name] = true
		w.mu.Unlock()
	}
	if outOfService(after) && (before == nil || !outOfService(before)) {
		q.Add(request{node: after.Name})
	}
}
