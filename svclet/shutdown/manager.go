package shutdown

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/pod"
)

// The reason and the messages of pods that are ended: kubelet's.
const (
	podReason      = "Terminated"
	podMessage     = "Pod was terminated in response to imminent node shutdown."
	eventReason    = "NodeShutdown"
	problemMessage = "node is shutting down"
)

// Machine is the login manager of the machine.
type Machine interface {
	// Delay returns how long the machine waits for those that delay its shutdown.
	Delay(ctx context.Context) (time.Duration, error)
	// SetDelay makes the machine wait that long.
	SetDelay(ctx context.Context, delay time.Duration) error
	// Inhibit delays the shutdown until the lock is closed.
	Inhibit(ctx context.Context) (lock io.Closer, err error)
	// Prepares reports whether the machine is about to shut down.
	Prepares(ctx context.Context) (bool, error)
	// Watch receives true when the machine is about to shut down, and false when that is
	// cancelled. The channel is closed when the connection ends.
	Watch(ctx context.Context) (<-chan bool, error)
}

// Pods are the pods of the node.
type Pods interface {
	// Active returns the pods that use resources of the node, or will.
	Active() []*corev1.Pod
	// Terminate ends a pod.
	Terminate(uid types.UID, e pod.Eviction)
	// Released reports whether the node has got back everything that a pod used, its volumes
	// among it. It is true of a pod that is not known.
	Released(uid types.UID) bool
	// Written reports whether the API server has the pod's status. It is true of a pod whose
	// status cannot be written: that the API server does not have, or while it is not available.
	Written(uid types.UID) bool
}

// Options are what a manager works with. All fields are required.
type Options struct {
	Groups  []Group
	Connect func(ctx context.Context) (Machine, error)
	Pods    Pods
	Clock   clock.Clock
	// State is set by the manager; Changed is called after a change.
	State   *State
	Changed func()
	// Event records an event about the node.
	Event func(kind, reason, message string)
}

// State is whether the node shuts down, which the manager sets and other parts of the
// agent read. The zero value is that it does not.
type State struct {
	mu           sync.Mutex
	shuttingDown bool
}

// IsShuttingDown reports whether the node shuts down: it admits no pods then.
func (s *State) IsShuttingDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shuttingDown
}

// Problems returns why the node is not ready.
func (s *State) Problems() []error {
	if s.IsShuttingDown() {
		return []error{errors.New(problemMessage)}
	}
	return nil
}

func (s *State) set(shuttingDown bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shuttingDown = shuttingDown
}

// Manager delays the shutdown of the node until its pods have ended.
type Manager struct{ o Options }

// New returns a manager that does nothing before [Manager.Run].
func New(o Options) *Manager { return &Manager{o: o} }

// The bounds of the pause before the login manager is connected again.
const (
	minRetry = time.Second
	maxRetry = time.Minute
)

// Run delays shutdowns until ctx is done. It returns at once without groups.
func (m *Manager) Run(ctx context.Context) {
	if len(m.o.Groups) == 0 {
		return
	}
	for retry := minRetry; ; retry = min(2*retry, maxRetry) {
		began := m.o.Clock.Now()
		err := m.serve(ctx)
		if ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).Error(err, "Graceful shutdown of the node is not available, will retry", "after", retry)
		select {
		case <-ctx.Done():
			return
		case <-m.o.Clock.After(retry):
		}
		if m.o.Clock.Since(began) > maxRetry {
			retry = minRetry
		}
	}
}

// serve waits for shutdowns until ctx is done or the connection ends.
func (m *Manager) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	machine, err := m.o.Connect(ctx)
	if err != nil {
		return err
	}
	if err := m.ensureDelay(ctx, machine); err != nil {
		return err
	}
	events, err := machine.Watch(ctx)
	if err != nil {
		return err
	}
	// What has changed while there was no connection.
	prepares, err := machine.Prepares(ctx)
	if err != nil {
		return err
	}
	var lock io.Closer
	defer func() { release(ctx, lock) }()
	switch was := m.o.State.IsShuttingDown(); {
	case prepares && !was:
		m.begin(ctx)
	case !prepares:
		if was {
			m.end(ctx)
		}
		if lock, err = machine.Inhibit(ctx); err != nil {
			return err
		}
	}
	klog.FromContext(ctx).Info("Delaying shutdowns of the node until its pods have ended", "atMost", Total(m.o.Groups))
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case begins, open := <-events:
			if !open {
				return errors.New("the connection with the login manager has ended")
			}
			if !begins {
				m.end(ctx)
				if lock, err = m.again(ctx, machine, lock); err != nil {
					return err
				}
				continue
			}
			m.begin(ctx)
			release(ctx, lock)
			lock = nil
		}
	}
}

// begin ends the pods, because the machine is about to shut down.
func (m *Manager) begin(ctx context.Context) {
	m.o.State.set(true)
	m.o.Changed()
	m.o.Event(corev1.EventTypeNormal, eventReason, "Shutdown manager detected shutdown event")
	m.endPods(ctx)
}

// end makes the node admit pods again.
func (m *Manager) end(ctx context.Context) {
	m.o.State.set(false)
	m.o.Changed()
	klog.FromContext(ctx).Info("Shutdown of the node was cancelled")
}

// again delays the next shutdown, after one was cancelled.
func (m *Manager) again(ctx context.Context, machine Machine, lock io.Closer) (io.Closer, error) {
	release(ctx, lock)
	return machine.Inhibit(ctx)
}

func release(ctx context.Context, lock io.Closer) {
	if lock == nil {
		return
	}
	if err := lock.Close(); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to release the lock that delays the shutdown of the node")
	}
}

// ensureDelay makes the machine wait long enough for all groups.
func (m *Manager) ensureDelay(ctx context.Context, machine Machine) error {
	needed := Total(m.o.Groups)
	delay, err := machine.Delay(ctx)
	if err != nil || delay >= needed {
		return err
	}
	if err := machine.SetDelay(ctx, needed); err != nil {
		return err
	}
	if delay, err = machine.Delay(ctx); err != nil {
		return err
	}
	if delay < needed {
		return fmt.Errorf("the node's pods get %s, but the login manager delays shutdowns by at most %s: raise InhibitDelayMaxSec in logind.conf", needed, delay)
	}
	return nil
}

// endPods ends the pods of one group after the other.
func (m *Manager) endPods(ctx context.Context) {
	logger := klog.FromContext(ctx)
	pods := m.o.Pods.Active()
	logger.Info("Node shuts down, ending its pods", "count", len(pods))
	for i, group := range assign(m.o.Groups, pods) {
		for _, p := range group {
			seconds := grace(m.o.Groups[i], p)
			m.o.Pods.Terminate(p.UID, pod.Eviction{Reason: podReason, Message: podMessage, Disruption: podMessage, Grace: &seconds})
		}
		if !m.awaitEnd(ctx, group, m.o.Groups[i].Grace) {
			logger.Info("Pods did not end, or were not unmounted, within the time of their priority", "priority", m.o.Groups[i].Priority, "grace", m.o.Groups[i].Grace)
		}
	}
}

// endPoll is how often the pods of a group are checked.
const endPoll = 100 * time.Millisecond

// awaitEnd waits until the pods of a group have ended, their volumes are unmounted and their
// statuses are written, and reports whether they are within the limit. Drivers of the volumes, as
// pods of a later group, are needed for that (kubelet's WaitForAllPodsUnmount).
func (m *Manager) awaitEnd(ctx context.Context, group []*corev1.Pod, limit time.Duration) bool {
	late := m.o.Clock.After(limit)
	isLeft := func(p *corev1.Pod) bool { return !m.o.Pods.Released(p.UID) || !m.o.Pods.Written(p.UID) }
	for {
		if !slices.ContainsFunc(group, isLeft) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-late:
			return false
		case <-m.o.Clock.After(endPoll):
		}
	}
}
