package status

import (
	"cmp"
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/svclet/source"
)

// Options are what a [Manager] needs.
type Options struct {
	// Core is a client of the core group, without a rate limit. Without it statuses
	// are only kept.
	Core rest.Interface
	// InFlight is the maximum number of pods written at once, 4 if zero.
	InFlight int
	// Written, if set, is called with the time from a change to its update in the API
	// server.
	Written func(time.Duration)
	// Clock is the system clock by default.
	Clock clock.WithDelayedExecution
}

// Manager writes the statuses of pods. Its methods are safe for concurrent use and
// do not block on I/O.
type Manager struct {
	o Options

	mu sync.Mutex
	// pods are by UID on this node: of static pods not the UID of their mirrors.
	pods map[types.UID]*entry
	// mirrors are the pods with the annotation of mirror pods whose static pod is not known.
	mirrors map[types.NamespacedName]*corev1.Pod
	// queue are the entries to sync, in order.
	queue []*entry
	// ctx is nil before and after Run.
	ctx      context.Context
	inFlight sync.WaitGroup
	// slow is the number of requests in flight of pods whose requests are slow, busy that of
	// the others.
	busy, slow int
	away       outage
}

// entry is the state of one pod.
type entry struct {
	uid types.UID
	// pod is the pod and want its status, as set by the node; both are nil until Set.
	pod  *corev1.Pod
	want *corev1.PodStatus
	// since is when want changed, if that is not written yet.
	since time.Time
	// api is the pod, or its mirror, in the API server, or nil.
	api *corev1.Pod
	// written is the last want that the API server has, and stored its status with it. It
	// may differ in more than what other writers set: the server may normalize it, or be
	// of a release that lacks some fields.
	written, stored *corev1.PodStatus
	// settled reports that want has been compared with api, and written.
	settled             bool
	finished, forgotten bool
	// restarted reports that the status in api is that of an earlier run of a static
	// pod.
	restarted           bool
	queued, busy, again bool
	// slow reports that the last answer to a request of the pod took longer than slowRequest,
	// or that there was none.
	slow     bool
	failures failures
}

const defaultInFlight = 4

// New returns a manager. It writes nothing before [Manager.Run].
func New(o Options) *Manager {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.InFlight <= 0 {
		o.InFlight = defaultInFlight
	}
	return &Manager{o: o, pods: map[types.UID]*entry{}, mirrors: map[types.NamespacedName]*corev1.Pod{}}
}

// Run writes statuses until ctx is done, and returns when no request is in flight.
// Statuses set before are written first.
func (m *Manager) Run(ctx context.Context) {
	m.mu.Lock()
	m.ctx = ctx
	m.dispatch()
	m.mu.Unlock()
	<-ctx.Done()
	m.mu.Lock()
	m.ctx = nil
	m.away.stop()
	for _, e := range m.pods {
		e.failures.stop()
	}
	m.mu.Unlock()
	m.inFlight.Wait()
}

// Set sets the pod's status. An invalid transition is ignored or corrected:
// [Manager.Status] returns the result.
func (m *Manager) Set(pod *corev1.Pod, status corev1.PodStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.local(pod)
	if e.forgotten {
		// A static pod became desired again without a change: it starts again.
		e.want, e.finished, e.forgotten, e.restarted = nil, false, false, true
	}
	m.set(e, pod, status)
}

func (m *Manager) set(e *entry, pod *corev1.Pod, status corev1.PodStatus) {
	e.pod = pod
	old := e.last()
	if err := checkTransition(&pod.Spec, old, &status); err != nil {
		klog.Background().Error(err, "Ignoring invalid update of pod status", "pod", klog.KObj(pod), "podUID", pod.UID)
		return
	}
	next := nextStatus(pod, old, &status, m.o.Clock.Now())
	if e.want != nil && same(e.want, next) {
		return
	}
	if e.since.IsZero() {
		e.since = m.o.Clock.Now()
	}
	e.want = next
	e.settled = false
	e.failures.reset()
	m.enqueue(e)
}

// Finish records that all containers of the pod have terminated and that its
// resources are released. If the pod is being deleted, its object is deleted once
// its status is in the API server.
func (m *Manager) Finish(pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.local(pod)
	e.finished = true
	m.end(e)
	m.enqueue(e)
	m.drop(e)
}

// end sets a terminal phase for a pod that is being deleted.
func (m *Manager) end(e *entry) {
	if !e.finished || e.want == nil || e.api == nil || e.api.DeletionTimestamp == nil || source.IsMirror(e.api) || podspec.IsTerminal(e.want.Phase) {
		return
	}
	status := e.want.DeepCopy()
	status.Phase = corev1.PodFailed
	m.set(e, e.pod, *status)
}

// Forget records that no source wants the pod and that the runtime has nothing of
// it. Its status is kept only as long as the pod is in the API server.
func (m *Manager) Forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.pods[uid]; e != nil {
		e.forgotten = true
		m.drop(e)
	}
}

// Status returns the status of the pod with this UID, which is not that of a
// mirror pod, as it is written to the API server, without the conditions of other
// writers.
func (m *Manager) Status(uid types.UID) (corev1.PodStatus, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.pods[uid]; e != nil && e.want != nil {
		return *e.want.DeepCopy(), true
	}
	return corev1.PodStatus{}, false
}

// Written reports whether the API server has the status that the node has set. It is true if it
// cannot be written: of a pod that the API server does not have, and while the API server is not
// available.
func (m *Manager) Written(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.pods[uid]
	return e == nil || e.api == nil || e.since.IsZero() || m.away.delay > 0
}

// Observed records a pod, or a mirror pod, in the API server.
func (m *Manager) Observed(pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.remote(pod)
	if e == nil {
		m.mirrors[nameOf(pod)] = pod
		return
	}
	if e.api != nil && e.api.UID == pod.UID {
		order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, e.api.ResourceVersion)
		switch {
		case err == nil && order < 0:
			// It is older than the last write.
			return
		case err == nil && order == 0:
			e.observe(pod)
			return
		}
	}
	e.api = pod
	e.settled = false
	m.end(e)
	m.enqueue(e)
}

// observe replaces the pod in the API server by another copy of it. Only one is kept.
func (e *entry) observe(pod *corev1.Pod) {
	if e.stored == &e.api.Status {
		e.stored = &pod.Status
	}
	e.api = pod
}

// Gone records that a pod, or a mirror pod, was removed from the API server.
func (m *Manager) Gone(pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mirror := m.mirrors[nameOf(pod)]; mirror != nil && mirror.UID == pod.UID {
		delete(m.mirrors, nameOf(pod))
	}
	if e := m.pods[cmp.Or(source.StaticUID(pod), pod.UID)]; e != nil && e.api != nil && e.api.UID == pod.UID {
		m.lose(e)
	}
}

// lose records that the pod is not in the API server.
func (m *Manager) lose(e *entry) {
	mirror := source.IsMirror(e.api)
	e.api = nil
	if e.finished && !mirror {
		e.forgotten = true
	}
	m.drop(e)
}

// drop removes an entry that is no longer needed.
func (m *Manager) drop(e *entry) {
	if e.api == nil && (e.forgotten || e.want == nil && !e.finished) {
		e.failures.stop()
		delete(m.pods, e.uid)
	}
}

func (m *Manager) entry(uid types.UID) *entry {
	e := m.pods[uid]
	if e == nil {
		e = &entry{uid: uid}
		m.pods[uid] = e
	}
	return e
}

// local returns the entry of a pod of this node, for a static pod with its mirror.
func (m *Manager) local(pod *corev1.Pod) *entry {
	e := m.entry(pod.UID)
	if mirror := m.mirrors[nameOf(pod)]; e.api == nil && mirror != nil && source.IsMirrorOf(mirror, pod) {
		e.api, e.settled = mirror, false
		delete(m.mirrors, nameOf(pod))
	}
	return e
}

// remote returns the entry of a pod in the API server. It is nil for one with the annotation of
// mirror pods of which no static pod is known.
func (m *Manager) remote(pod *corev1.Pod) *entry {
	if !source.IsMirror(pod) {
		return m.entry(pod.UID)
	}
	if e := m.pods[source.StaticUID(pod)]; e != nil && e.pod != nil && source.IsMirrorOf(pod, e.pod) {
		return e
	}
	return nil
}

func nameOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// last returns the last known status of the pod, or nil.
func (e *entry) last() *corev1.PodStatus {
	switch {
	case e.want != nil:
		return e.want
	case e.restarted:
		return &corev1.PodStatus{}
	case e.api != nil:
		return &e.api.Status
	default:
		return &e.pod.Status
	}
}
