package podmanager

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/svclet/nodeconfig"
	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/podworker"
	"svc.dev/svc/svclet/runtime"
	"svc.dev/svc/svclet/source"
)

// sync brings the workers in line with an update of a source.
func (m *Manager) sync(ctx context.Context, update source.Update) {
	m.sortForAdmission(update.Set)
	for _, removed := range update.Removed {
		m.removePod(removed)
	}
	for _, p := range update.Set {
		if w := m.get(p.UID); w != nil && !w.IsRemoved() {
			m.update(ctx, w, p)
			if p.DeletionTimestamp != nil {
				m.stopAllocating(p.UID)
			}
			continue
		}
		m.add(ctx, p)
	}
	if update.Ready && !m.isReady() {
		m.setReady()
		m.removeOrphans(ctx)
	}
	m.updateQOS(ctx)
}

// removePod ends a pod that its source has removed.
func (m *Manager) removePod(p *corev1.Pod) {
	m.stopWaiting(p.UID)
	w := m.get(p.UID)
	if w == nil || w.IsOrphaned() {
		m.o.Sources.Released(p)
		return
	}
	w.Remove()
	m.stopAllocating(p.UID)
}

// add starts a pod, or lets it wait for its predecessors.
func (m *Manager) add(ctx context.Context, p *corev1.Pod) {
	if m.get(p.UID) != nil || source.IsStatic(p) && m.hasPredecessor(ctx, p) {
		m.wait(p)
		return
	}
	held, adopted := m.adoptable[p.UID]
	delete(m.adoptable, p.UID)
	s := podworker.Start{
		Pod: p, Machine: m.o.Machine, Known: m.o.Clock.Now(),
		Observed: held.Observed, Unobserved: held.Err != nil, Adopted: adopted,
	}
	m.useAllocation(&s)
	if !adopted {
		s.Rejection, s.Wait = m.admit(s.Pod)
	}
	if s.Pod == p && s.Rejection == nil {
		m.saveAllocation(ctx, p)
	}
	m.startWorker(ctx, s)
	if s.Pod != p {
		m.update(ctx, m.get(p.UID), p)
	}
	m.o.Metrics.PodSeen(len(p.Spec.Containers), m.o.Clock.Since(s.Known))
}

// startWorker starts the worker of a pod.
func (m *Manager) startWorker(ctx context.Context, s podworker.Start) {
	w := podworker.New(ctx, m.worker, s)
	// The pod is in the table before it leaves anything on the machine.
	m.start(s.Pod.UID, w)
	w.Start()
}

// statusNode returns what the statuses of pods show of the node now.
func (m *Manager) statusNode() pod.Node {
	node := m.o.Node.Object()
	return pod.Node{HostIPs: nodeconfig.HostIPs(node), RecursiveReadOnly: nodeconfig.RecursiveReadOnly(node, "")}
}

// hasPredecessor reports whether another pod of the same name has not been released
// yet. One that is only in the runtime is ended: no source can have it any more.
func (m *Manager) hasPredecessor(ctx context.Context, p *corev1.Pod) bool {
	for uid, held := range m.adoptable {
		if uid != p.UID && held.Namespace == p.Namespace && held.Name == p.Name {
			delete(m.adoptable, uid)
			m.startOrphan(ctx, held)
		}
	}
	for _, w := range m.all() {
		if other := w.Pod(); other.Namespace == p.Namespace && other.Name == p.Name {
			return true
		}
	}
	return false
}

// released removes a pod from the table of which nothing is left and that no source
// has any more, and starts the pods that have waited for that.
func (m *Manager) released(ctx context.Context, w *podworker.Worker) {
	p := w.Pod()
	m.remove(p.UID)
	m.o.Statuses.Forget(p.UID)
	m.o.Sources.Released(p)
	_, waiting, _ := m.snapshot()
	for _, next := range waiting {
		m.add(ctx, next)
	}
	// The runtime may have reported a sandbox or container after the worker stopped.
	if observed := w.Observed(); !isEmpty(observed) {
		m.observe(ctx, runtime.Pod{UID: p.UID, Namespace: p.Namespace, Name: p.Name, Observed: observed})
	}
	m.updateQOS(ctx)
}

// observe handles a change of a pod in the runtime.
func (m *Manager) observe(ctx context.Context, observed runtime.Pod) {
	w := m.get(observed.UID)
	switch {
	case w != nil:
		w.Observe(observed.Observed)
	case isEmpty(observed.Observed):
		delete(m.adoptable, observed.UID)
	case m.isReady():
		m.startOrphan(ctx, observed)
	default:
		m.adoptable[observed.UID] = observed
	}
}

func isEmpty(observed pod.Observed) bool {
	return len(observed.Sandboxes)+len(observed.Containers) == 0
}

// updateQOS passes the active pods on to the updater of QoS cgroups, and frees what
// others have allocated.
func (m *Manager) updateQOS(ctx context.Context) {
	m.retryResizes(ctx)
	active := m.Active()
	m.forgetResizes(ctx, active)
	m.o.QOS.SetActive(active)
	if m.o.Allocations != nil && m.isReady() {
		m.o.Allocations.Retain(m.holders())
	}
	m.retryAllocations()
}
