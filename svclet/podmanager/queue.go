package podmanager

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/podworker"
	"svc.dev/svc/svclet/runtime"
)

// Queue holds the events that the event loop has not handled yet. Its methods
// never block and may be called from any goroutine: those that observe pods hold
// only a lock that nothing holds during I/O.
type Queue struct {
	// added has an element if there may be events.
	added chan struct{}

	mu     sync.Mutex
	events []event
}

// event changes the table. It runs in the goroutine of the event loop and must not
// block.
type event func(ctx context.Context, m *Manager)

// NewQueue returns an empty queue.
func NewQueue() *Queue { return &Queue{added: make(chan struct{}, 1)} }

// Observe adds a change of a pod in the container runtime.
func (q *Queue) Observe(observed runtime.Pod) {
	q.add(func(ctx context.Context, m *Manager) { m.observe(ctx, observed) })
}

// ProbeResult adds the result of a probe.
func (q *Queue) ProbeResult(uid types.UID, result pod.ProbeResult) {
	q.add(func(_ context.Context, m *Manager) {
		if w := m.get(uid); w != nil {
			w.Probe(result)
		}
	})
}

// ObjectsChanged adds a change of API objects that these pods refer to.
func (q *Queue) ObjectsChanged(uids []types.UID) {
	q.add(func(_ context.Context, m *Manager) {
		for _, uid := range uids {
			if w := m.get(uid); w != nil {
				w.ObjectsChanged()
			}
		}
	})
}

// HealthChanged adds a change of the health of devices that these pods have.
func (q *Queue) HealthChanged(uids []types.UID) {
	q.add(func(_ context.Context, m *Manager) {
		for _, uid := range uids {
			if w := m.get(uid); w != nil {
				w.HealthChanged()
			}
		}
	})
}

// NodeChanged adds a change of what pods show of their node: its addresses, and what its container
// runtime supports.
func (q *Queue) NodeChanged() {
	q.add(func(_ context.Context, m *Manager) {
		for _, w := range m.all() {
			w.NodeChanged()
		}
	})
}

// PodEnded implements podworker.Listener.
func (q *Queue) PodEnded() {
	q.add(func(ctx context.Context, m *Manager) { m.updateQOS(ctx) })
}

// PodReleased implements podworker.Listener.
func (q *Queue) PodReleased(w *podworker.Worker) {
	q.add(func(ctx context.Context, m *Manager) { m.released(ctx, w) })
}

func (q *Queue) add(e event) {
	q.mu.Lock()
	q.events = append(q.events, e)
	q.mu.Unlock()
	select {
	case q.added <- struct{}{}:
	default:
	}
}

// take removes all events, in the order in which they were added.
func (q *Queue) take() []event {
	q.mu.Lock()
	defer q.mu.Unlock()
	events := q.events
	q.events = nil
	return events
}
