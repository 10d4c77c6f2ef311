package podmanager

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/admit"
	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/podworker"
	"svc.dev/svc/svclet/runtime"
	"svc.dev/svc/svclet/source"
)

// Statuses write the statuses of pods to the API.
type Statuses interface {
	podworker.Statuses
	// Forget is called when no pod of this UID is on the node any more.
	Forget(uid types.UID)
}

// Sources are where pods come from.
type Sources interface {
	// Released is called when nothing is left on the node of a pod that a source
	// has removed.
	Released(p *corev1.Pod)
	// Mirror returns the mirror pod of a static pod.
	Mirror(static *corev1.Pod) (*corev1.Pod, bool)
}

// Node is the Node that pods are admitted by.
type Node interface {
	Object() *corev1.Node
	// Known reports whether Object is as the API has it.
	Known() bool
}

// QOS updates the cgroups of the QoS classes.
type QOS interface {
	// SetActive replaces the pods that use resources of the node. It must not
	// block.
	SetActive(pods []*corev1.Pod)
}

// Allocations are the resources that containers have alone.
type Allocations interface {
	// Admit allocates those of a pod, or returns why the node does not admit it.
	Admit(p *corev1.Pod) *admit.Refusal
	// Retain frees those of all other pods.
	Retain(pods []*corev1.Pod)
	// Pods returns the pods that have some.
	Pods() []types.UID
}

// Metrics measure pods.
type Metrics interface {
	podworker.Metrics
	PodSeen(containers int, took time.Duration)
	PodRejected(reason string)
}

// Options are what a [Manager] works with. All fields are required unless their
// comment says otherwise.
type Options struct {
	Queue    *Queue
	Table    *Table
	Executor podworker.Executor
	Probes   podworker.Probes
	Statuses Statuses
	Sources  Sources
	Node     Node
	QOS      QOS
	Events   podworker.Recorder
	Metrics  Metrics
	Clock    clock.WithDelayedExecution
	// Leftovers are where removed pods may have left something.
	Leftovers Leftovers
	Admission admit.Options
	// Allocations may be nil.
	Allocations Allocations
	// Health may be nil.
	Health  podworker.Health
	Resizes Resizes
	// Pressure returns the pressure conditions of the node; nil means none.
	Pressure func() []corev1.NodeConditionType
	// MaxDeadContainers is how many terminated containers of the node are kept, -1 for all
	// that their pods keep (--maximum-dead-containers).
	MaxDeadContainers int
	// ShuttingDown reports whether the node shuts down; nil means that it never does.
	ShuttingDown func() bool
	// Machine has the options of state machines.
	Machine pod.Options
}

// Manager has a worker for each pod that a source has, and for each that is only
// left in the runtime or on the machine.
type Manager struct {
	*Table
	o Options
	// busySince is when the event loop began with the event that it handles, nil
	// while it waits for one.
	busySince  atomic.Pointer[time.Time]
	goroutines sync.WaitGroup
	worker     podworker.Options // of all workers

	// adoptable are pods that the runtime held when the agent started and that no
	// source has delivered yet. They belong to the event loop.
	adoptable map[types.UID]runtime.Pod
	resizes   resizes
	// unallocated are pods that wait for what others still have alone, in the order in which
	// they get it. They belong to the event loop.
	unallocated []*unallocated
}

// New returns a manager without pods.
func New(o Options) *Manager {
	m := &Manager{o: o, Table: o.Table, adoptable: map[types.UID]runtime.Pod{}, resizes: resizes{pending: map[types.UID]pendingResize{}}}
	m.worker = podworker.Options{
		Executor: o.Executor, Probes: o.Probes, Statuses: o.Statuses, Logs: o.Leftovers.Logs, Events: o.Events, Metrics: o.Metrics,
		Listener: o.Queue, Node: m.statusNode, Health: o.Health, Clock: o.Clock, Goroutines: &m.goroutines,
	}
	return m
}

// Adopt sets the pods that the runtime holds when the agent starts, before Run:
// those that a source delivers keep running, all others end.
func (m *Manager) Adopt(held []runtime.Pod) {
	for _, p := range held {
		m.adoptable[p.UID] = p
	}
}

// Run handles events until ctx is done, and waits for the workers. It is called
// once.
func (m *Manager) Run(ctx context.Context, updates <-chan source.Update) {
	defer m.goroutines.Wait()
	m.goroutines.Go(func() { m.receive(ctx, updates) })
	m.goroutines.Go(func() { m.limitDeadContainers(ctx) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.o.Queue.added:
		}
		for _, e := range m.o.Queue.take() {
			if ctx.Err() != nil {
				return
			}
			began := m.o.Clock.Now()
			m.busySince.Store(&began)
			e(ctx, m)
			m.busySince.Store(nil)
		}
	}
}

// Progress returns when the event loop last made progress: now, unless it is still
// busy with an event. It implements server.SyncLoop.
func (m *Manager) Progress() time.Time {
	if began := m.busySince.Load(); began != nil {
		return *began
	}
	return m.o.Clock.Now()
}

// receive adds the updates of sources to the queue. The first update of the API
// waits for the Node.
func (m *Manager) receive(ctx context.Context, updates <-chan source.Update) {
	waited := false
	for {
		select {
		case <-ctx.Done():
			return
		case update := <-updates:
			if update.Source == source.API && !waited {
				waited = true
				m.awaitNode(ctx)
			}
			m.o.Queue.add(func(ctx context.Context, m *Manager) { m.sync(ctx, update) })
		}
	}
}

// Bounds of the wait for the Node before the first pods of the API are admitted.
const (
	nodeWait = 10 * time.Second
	nodePoll = 20 * time.Millisecond
)

// awaitNode waits until the Node is known as the API has it: it may have labels that
// pods select. Pods of a Node that the API does not have are admitted after
// nodeWait.
func (m *Manager) awaitNode(ctx context.Context) {
	for began := m.o.Clock.Now(); !m.o.Node.Known() && m.o.Clock.Since(began) < nodeWait; {
		select {
		case <-ctx.Done():
			return
		case <-m.o.Clock.After(nodePoll):
		}
	}
}
