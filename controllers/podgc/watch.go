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

// watcher makes requests of the few events that may make a pod garbage. It
// knows the names of the nodes and the number of ended pods, so that the others
// cost nothing.
type watcher struct {
	threshold int

	mu    sync.Mutex
	nodes map[string]bool
	ended int
}

// endedPause gathers pods that end, so that however many do, the ended ones are
// looked through at most this often.
const endedPause = time.Second

func (w *watcher) pods() controller.Watch[request] {
	return controller.Watch[request]{Object: &corev1.Pod{}, Handler: handler.TypedFuncs[client.Object, request]{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q controller.Queue[request]) {
			w.pod(q, nil, e.Object.(*corev1.Pod))
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q controller.Queue[request]) {
			w.pod(q, e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod))
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q controller.Queue[request]) {
			w.pod(q, e.Object.(*corev1.Pod), nil)
		},
	}}
}

// pod handles a change of a pod; nil is a pod that does not exist.
func (w *watcher) pod(q controller.Queue[request], before, after *corev1.Pod) {
	w.mu.Lock()
	grown := endedNow(before, after)
	w.ended += grown
	tooMany := w.threshold > 0 && w.ended > w.threshold && grown > 0
	known := after == nil || after.Spec.NodeName == "" || w.nodes[after.Spec.NodeName]
	w.mu.Unlock()
	if tooMany {
		q.AddAfter(request{}, endedPause)
	}
	if after == nil {
		return
	}
	if !known && (before == nil || before.Spec.NodeName != after.Spec.NodeName) {
		q.Add(request{node: after.Spec.NodeName})
	}
	if after.DeletionTimestamp != nil && (before == nil || before.DeletionTimestamp == nil) {
		q.Add(request{pod: client.ObjectKeyFromObject(after)})
	}
}

func (w *watcher) nodesWatch() controller.Watch[request] {
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

// node handles a change of a node; before is nil if it is new.
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
