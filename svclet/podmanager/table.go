package podmanager

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/svclet/podworker"
)

// Table holds the pods of the node. Only the event loop of a [Manager] changes it;
// queries read it at any time. Its lock is held for no longer than a look-up takes.
type Table struct {
	mu      sync.RWMutex
	workers map[types.UID]*podworker.Worker
	// waiting are pods that start when a predecessor has been released: a static
	// pod of the same name, or the pod's own earlier life.
	waiting []*corev1.Pod
	// ready means that every source has delivered its pods once.
	ready bool
}

// NewTable returns a table without pods.
func NewTable() *Table { return &Table{workers: map[types.UID]*podworker.Worker{}} }

// get returns the worker of a pod, nil if it has none.
func (t *Table) get(uid types.UID) *podworker.Worker {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.workers[uid]
}

// all returns the workers of all pods.
func (t *Table) all() []*podworker.Worker {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.allLocked()
}

func (t *Table) allLocked() []*podworker.Worker {
	all := make([]*podworker.Worker, 0, len(t.workers))
	for _, w := range t.workers {
		all = append(all, w)
	}
	return all
}

// snapshot returns the workers and the pods that wait, both of one moment.
func (t *Table) snapshot() (workers []*podworker.Worker, waiting []*corev1.Pod, ready bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.allLocked(), slices.Clone(t.waiting), t.ready
}

// start adds the worker of a pod, which waits no more.
func (t *Table) start(uid types.UID, w *podworker.Worker) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.workers[uid] = w
	t.stopWaitingLocked(uid)
}

// remove removes the worker of a pod.
func (t *Table) remove(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.workers, uid)
}

// wait adds a pod to those that wait. It replaces an older object of the same pod.
func (t *Table) wait(p *corev1.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopWaitingLocked(p.UID)
	t.waiting = append(t.waiting, p)
}

// stopWaiting removes a pod from those that wait.
func (t *Table) stopWaiting(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopWaitingLocked(uid)
}

func (t *Table) stopWaitingLocked(uid types.UID) {
	t.waiting = slices.DeleteFunc(t.waiting, func(p *corev1.Pod) bool { return p.UID == uid })
}

func (t *Table) isReady() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.ready
}

func (t *Table) setReady() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ready = true
}

// IsKnown reports whether a pod has a worker. A pod gets it before it leaves
// anything on the machine.
func (t *Table) IsKnown(uid types.UID) bool { return t.get(uid) != nil }

// Workers returns how many pods have a worker.
func (t *Table) Workers() int { return len(t.all()) }

// Waiting returns how many pods wait for a predecessor.
func (t *Table) Waiting() int {
	_, waiting, _ := t.snapshot()
	return len(waiting)
}
