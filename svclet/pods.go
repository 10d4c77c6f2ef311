package svclet

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/svclet/admit"
	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/probe"
	"svc.dev/svc/svclet/runtime"
	"svc.dev/svc/svclet/source"
	"svc.dev/svc/svclet/status"
)

// pods has a worker for each pod that somebody wants on this node, and for each
// that the runtime still holds. It is where sources and runtime meet.
type pods struct {
	*operations
	statuses *status.Manager
	probes   *probe.Manager
	sources  *source.Sources
	clock    clock.WithDelayedExecution
	// maxBackOff is crashLoopBackOff.maxContainerRestartPeriod, zero for the
	// default.
	maxBackOff time.Duration
	// node is what pods are admitted by.
	node      func() *corev1.Node
	nodeKnown func() bool
	// mirrored says that the API shows static pods.
	mirrored  bool
	admission admit.Options

	ctx   context.Context
	group *sync.WaitGroup

	mu      sync.Mutex
	workers map[types.UID]*member
	// held are the pods that the runtime had when the agent started and that no
	// source has named yet.
	held map[types.UID]runtime.Pod
	// waiting are pods that follow another one: static pods one of the same
	// name, and a pod that is wanted again its own earlier life.
	waiting []*corev1.Pod
	ready   bool
	// waited says that the node has been waited for; of the goroutine of run.
	waited bool
	// busy is when run began with what it is at, nil when it waits for more.
	busy atomic.Pointer[time.Time]
}

// member is one of pods.
type member struct {
	*worker
	removed, refused bool
	evicted          bool // of the goroutine of limitStorage
}

// isActive says whether the pod uses something of the node, or is about to.
func (m *member) isActive() bool { return !m.refused && !m.orphan && !m.hasEnded() }

// run serves what the sources send, until ctx is done.
func (p *pods) run(updates <-chan source.Update) {
	for {
		select {
		case <-p.ctx.Done():
			return
		case update := <-updates:
			began := p.clock.Now()
			p.busy.Store(&began)
			if update.Source == source.API {
				p.awaitNode()
			}
			p.apply(update)
			p.busy.Store(nil)
		}
	}
}

// Bounds of the wait for the node before the first pods of the API are admitted.
const (
	nodeWait = 10 * time.Second
	nodePoll = 20 * time.Millisecond
)

// awaitNode waits until the node is known as the API has it: somebody may have
// given it labels that pods ask for. Pods of a node that the API does not have
// run all the same.
func (p *pods) awaitNode() {
	if p.waited {
		return
	}
	p.waited = true
	for began := p.clock.Now(); !p.nodeKnown() && p.clock.Since(began) < nodeWait && p.ctx.Err() == nil; {
		<-p.clock.After(nodePoll)
	}
}

// apply brings the workers up to date with what a source wants.
func (p *pods) apply(update source.Update) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sort(update.Set)
	for _, removed := range update.Removed {
		p.remove(removed)
	}
	for _, wanted := range update.Set {
		if m := p.workers[wanted.UID]; m != nil && !m.removed {
			before := m.wanted()
			m.update(wanted)
			if !maps.Equal(before.Labels, wanted.Labels) || !maps.Equal(before.Annotations, wanted.Annotations) {
				p.group.Go(func() { p.refresh(p.ctx, wanted) }) // volumes may show them
			}
			continue
		}
		p.add(wanted)
	}
	if update.Ready && !p.ready {
		p.ready = true
		p.clean()
	}
	p.share()
}

// sort puts pods into the order in which they are admitted: what runs already
// takes its place before anything new does, and then those that are on the node
// longest come first.
func (p *pods) sort(set []*corev1.Pod) {
	isNew := func(wanted *corev1.Pod) int {
		if _, held := p.held[wanted.UID]; held {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(set, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(isNew(a), isNew(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
}

// Progress is when what the sources want was last all done: now, unless there
// is an update that does not come to its end. It implements server.SyncLoop.
func (p *pods) Progress() time.Time {
	if began := p.busy.Load(); began != nil {
		return *began
	}
	return p.clock.Now()
}

// remove has a pod that no source wants any more end.
func (p *pods) remove(gone *corev1.Pod) {
	p.waiting = slices.DeleteFunc(p.waiting, func(w *corev1.Pod) bool { return w.UID == gone.UID })
	m := p.workers[gone.UID]
	if m == nil || m.orphan {
		p.sources.Released(gone)
		return
	}
	m.removed = true
	m.tell(func(machine *pod.Machine) { machine.Remove() })
}

// add begins with a pod, once those are gone that it follows.
func (p *pods) add(wanted *corev1.Pod) {
	if p.workers[wanted.UID] != nil || source.IsStatic(wanted) && p.follows(wanted) {
		p.waiting = append(slices.DeleteFunc(p.waiting, func(w *corev1.Pod) bool { return w.UID == wanted.UID }), wanted)
		return
	}
	had, held := p.held[wanted.UID]
	delete(p.held, wanted.UID)
	m := p.begin(wanted)
	m.adopted, m.blind = held, had.Err != nil
	refusal, before := p.admit(wanted, held)
	m.before = before
	p.metrics.PodSeen(len(wanted.Spec.Containers), p.clock.Since(m.began))
	m.refused = refusal != nil
	m.tell(func(machine *pod.Machine) {
		m.newer(had.Observed)(machine)
		if refusal != nil {
			machine.Reject(refusal.Reason, refusal.Message)
		}
	})
}

// begin makes the worker of a pod.
func (p *pods) begin(wanted *corev1.Pod) *member {
	o := pod.Options{
		HostIPs:           p.hostIPs(),
		MaxBackOff:        p.maxBackOff,
		RecursiveReadOnly: recursiveReadOnly(p.node().Status.RuntimeHandlers, ""),
	}
	m := &member{worker: newWorker(p.ctx, p.group, p, p.clock, wanted, o)}
	p.workers[wanted.UID] = m
	return m
}

// follows reports whether another pod of this name is still there. One that only
// the runtime knows ends then: no source can want it any more.
func (p *pods) follows(wanted *corev1.Pod) bool {
	for uid, left := range p.held {
		if uid != wanted.UID && left.Namespace == wanted.Namespace && left.Name == wanted.Name {
			delete(p.held, uid)
			p.end(left)
		}
	}
	for _, m := range p.workers {
		if other := m.wanted(); other.Namespace == wanted.Namespace && other.Name == wanted.Name {
			return true
		}
	}
	return false
}

// admit decides whether the node takes a pod: no refusal if it does, and before,
// if it is not nil, is what to do before the pod begins. What runs, or has ended,
// or is about to go, is not asked.
func (p *pods) admit(wanted *corev1.Pod, held bool) (refusal *admit.Refusal, before func()) {
	if held || wanted.DeletionTimestamp != nil || podspec.IsTerminal(wanted.Status.Phase) {
		return nil, nil
	}
	others := slices.DeleteFunc(p.active(), func(other *corev1.Pod) bool { return other.UID == wanted.UID })
	refusal = admit.Admit(wanted, others, p.node(), p.admission)
	if refusal == nil {
		return nil, nil
	}
	if len(refusal.Shortages) > 0 {
		victims, err := admit.Victims(wanted, others, refusal.Shortages)
		if err == nil {
			return nil, p.preempt(victims)
		}
		refusal = admit.NoVictims(err)
	}
	p.events.Event(wanted, pod.Event{Type: corev1.EventTypeWarning, Reason: refusal.Reason, Message: refusal.Message})
	p.metrics.PodRejected(refusal.Reason)
	return refusal, nil
}

// active are the pods that use something of the node, or are about to.
func (p *pods) active() []*corev1.Pod {
	var active []*corev1.Pod
	for _, m := range p.workers {
		if m.isActive() {
			active = append(active, m.wanted())
		}
	}
	return active
}

// share divides the processors, and what is kept of memory, between the classes
// of pods anew.
func (p *pods) share() {
	if err := p.cgroups.UpdateClasses(p.active()); err != nil {
		klog.FromContext(p.ctx).Error(err, "What the classes of pods share is not up to date")
	}
}

// shareAgain shares each minute what is not as it is to be: a class that uses more
// memory than it may cannot be bounded to less at once.
func (p *pods) shareAgain(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.clock.After(enforceAgain):
			p.mu.Lock()
			p.share()
			p.mu.Unlock()
		}
	}
}

// minVictimWait is how long a critical pod waits at least for one that makes room
// for it, and does not end; else it waits for half as long again as that one's
// grace period.
const minVictimWait = 10 * time.Second

// preempt ends pods that make room for a critical one, each within its own grace
// period. It returns what waits until they have ended.
func (p *pods) preempt(victims []*corev1.Pod) (wait func()) {
	var ends []func()
	for _, victim := range victims {
		m := p.workers[victim.UID]
		m.tell(func(m *pod.Machine) {
			m.Kill(admit.PreemptedReason, admit.PreemptedMessage, admit.PreemptedConditionMessage, nil)
		})
		p.events.Event(victim, pod.Event{Type: corev1.EventTypeWarning, Reason: admit.PreemptedReason, Message: admit.PreemptedMessage})
		grace := pod.Seconds(ptr.Deref(victim.Spec.TerminationGracePeriodSeconds, 0))
		late := p.clock.After(max(grace+grace/2, minVictimWait))
		ends = append(ends, func() {
			select {
			case <-m.finished:
			case <-p.ctx.Done():
			case <-late:
				p.events.Event(victim, pod.Event{
					Type: corev1.EventTypeWarning, Reason: "ExceededGracePeriod", Message: "Container runtime did not kill the pod within specified grace period.",
				})
			}
		})
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// clean ends what was left from before, now that all is known that anybody
// wants.
func (p *pods) clean() {
	for _, left := range p.held {
		p.end(left)
	}
	p.held = nil
	p.group.Go(p.sweep)
}

// sweep removes what pods have left behind that nobody knows any more.
func (p *pods) sweep() {
	logger := klog.FromContext(p.ctx)
	uids, err := p.volumes.UIDs()
	if err != nil {
		logger.Error(err, "Directories of pods that are gone cannot be looked for")
	}
	inCgroups, err := p.cgroups.Pods()
	if err != nil {
		logger.Error(err, "Cgroups of pods that are gone cannot be looked for")
	}
	withLogs, err := p.logs.Pods()
	if err != nil {
		logger.Error(err, "Logs of pods that are gone cannot be looked for")
	}
	for _, uid := range slices.Concat(uids, inCgroups, withLogs) {
		p.release(uid)
	}
	if err := p.logs.Sweep(p.known); err != nil {
		logger.Error(err, "Logs of pods that are gone cannot be removed")
	}
}

// known reports whether a pod has a worker. One gets it before it leaves
// anything on the machine.
func (p *pods) known(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.workers[uid] != nil
}

// release removes what is left of a pod that is not known. Until that has gone
// no pod of this UID begins.
func (p *pods) release(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.workers[uid] == nil {
		p.end(runtime.Pod{UID: uid})
	}
}

// end has a pod end that only the runtime knows.
func (p *pods) end(left runtime.Pod) {
	m := p.begin(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: left.UID, Namespace: left.Namespace, Name: left.Name}})
	m.removed, m.orphan, m.blind = true, true, left.Err != nil
	m.tell(func(machine *pod.Machine) {
		machine.Remove()
		m.newer(left.Observed)(machine)
	})
}

// observe is told by the runtime how a pod has changed.
func (p *pods) observe(seen runtime.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.workers[seen.UID]; m != nil {
		m.observe(seen.Observed)
		return
	}
	switch empty := len(seen.Observed.Sandboxes)+len(seen.Observed.Containers) == 0; {
	case empty:
		delete(p.held, seen.UID)
	case p.ready:
		p.end(seen)
	default:
		p.held[seen.UID] = seen
	}
}

// result is told what a probe has found.
func (p *pods) result(uid types.UID, r pod.ProbeResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.workers[uid]; m != nil {
		m.tell(func(machine *pod.Machine) { machine.Probe(r) })
	}
}

// changed is told which pods show objects that have changed.
func (p *pods) changed(uids []types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, uid := range uids {
		if m := p.workers[uid]; m != nil {
			p.group.Go(func() { p.refresh(p.ctx, m.wanted()) })
		}
	}
}

// show implements hands.
func (p *pods) show(w *worker, wanted *corev1.Pod, seen pod.Observed, out pod.Output) {
	for _, event := range out.Events {
		p.tell(wanted, event)
	}
	if out.Ended {
		p.probes.Remove(wanted.UID)
	} else {
		p.probes.Sync(wanted.UID, wanted, p.podIP(wanted, seen), out.Probes)
	}
	if out.Ended && !w.shared {
		w.shared = true
		p.mu.Lock()
		p.share()
		p.mu.Unlock()
	}
	if !w.orphan {
		p.statuses.Set(wanted, out.Status)
		p.started(w, wanted, out)
	}
	if !out.Released {
		return
	}
	if err := p.logs.RemovePod(wanted.UID); err != nil {
		klog.FromContext(p.ctx).Error(err, "The logs of a pod that is gone cannot be removed", "pod", logged(wanted))
	}
	p.statuses.Finish(wanted)
	p.drop(w, wanted)
}

// tell records an event about a pod. Of one that has left something on the
// machine nobody knows the name: the log has to do.
func (p *pods) tell(about *corev1.Pod, event pod.Event) {
	if about.Name != "" {
		p.events.Event(about, event)
		return
	}
	klog.FromContext(p.ctx).Info("What a pod left behind cannot be removed yet", "podUID", about.UID, "err", event.Message)
}

// drop forgets a pod of which nothing is left and that nobody wants.
func (p *pods) drop(w *worker, gone *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.workers[gone.UID]
	if m == nil || m.worker != w || !m.removed {
		return
	}
	w.stop()
	delete(p.workers, gone.UID)
	p.statuses.Forget(gone.UID)
	p.sources.Released(gone)
	waiting := p.waiting
	p.waiting = nil
	for _, next := range waiting {
		p.add(next)
	}
	p.share()
}
