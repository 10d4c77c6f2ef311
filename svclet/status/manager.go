package status

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Options are what a [Manager] needs.
type Options struct {
	// Core is a client of the core group, without a rate limit. It is nil
	// without an API server: statuses are then only kept.
	Core rest.Interface
	// InFlight is how many pods are written at once, 4 when zero.
	InFlight int
	// Written, if it is not nil, is told how long after a change it was in the
	// API.
	Written func(time.Duration)
	// Clock is the real one when nil.
	Clock clock.WithDelayedExecution
}

// Manager writes the statuses of pods. Its methods may be called from any
// goroutine and never block for long.
type Manager struct {
	o Options

	mu sync.Mutex
	// pods are by the UID that they have on this node: of static pods not that
	// of their mirrors.
	pods map[types.UID]*entry
	// queue has what is to be looked at, in order.
	queue []*entry
	// ctx is nil before Run and after it.
	ctx      context.Context
	inFlight sync.WaitGroup
	busy     int
	away     outage
}

// entry is what is known of one pod.
type entry struct {
	uid types.UID
	// pod is as the node wants it, want its status; both are nil until Set.
	pod  *corev1.Pod
	want *corev1.PodStatus
	// since is when want has changed that is not in the API yet.
	since time.Time
	// api is the pod, or its mirror, as the API has it; nil if it has none.
	api *corev1.Pod
	// settled says that want has been compared with api, and written.
	settled             bool
	finished, forgotten bool
	// anew says that what api shows is of an earlier life of a static pod.
	anew                bool
	queued, busy, again bool
	failures            failures
}

const defaultInFlight = 4

// New makes a manager. It writes nothing before [Manager.Run].
func New(o Options) *Manager {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.InFlight <= 0 {
		o.InFlight = defaultInFlight
	}
	return &Manager{o: o, pods: map[types.UID]*entry{}}
}

// Run writes until ctx is done, and returns when no request is under way any
// more. What was set before is written first.
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

// Set says that this is the pod's status now. What contradicts the rules of
// statuses is corrected: see [Manager.Status] for what becomes of it.
func (m *Manager) Set(pod *corev1.Pod, status corev1.PodStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entry(pod.UID)
	if e.forgotten {
		// A static pod is wanted again that is as it was: it begins anew.
		e.want, e.finished, e.forgotten, e.anew = nil, false, false, true
	}
	m.set(e, pod, status)
}

func (m *Manager) set(e *entry, pod *corev1.Pod, status corev1.PodStatus) {
	e.pod = pod
	old := e.last()
	if err := legal(&pod.Spec, old, &status); err != nil {
		klog.Background().Error(err, "Ignoring invalid update of pod status", "pod", klog.KObj(pod), "podUID", pod.UID)
		return
	}
	next := proceed(pod, old, &status, m.o.Clock.Now())
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

// Finish says that all of the pod's containers have ended and that nothing is
// left of it that somebody else could need. If it is being deleted, it is
// deleted once its status is in the API.
func (m *Manager) Finish(pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entry(pod.UID)
	e.finished = true
	m.end(e)
	m.enqueue(e)
	m.drop(e)
}

// end gives a pod that is being deleted a phase in which it may go.
func (m *Manager) end(e *entry) {
	if !e.finished || e.want == nil || e.api == nil || e.api.DeletionTimestamp == nil || isMirror(e.api) || terminal(e.want.Phase) {
		return
	}
	status := e.want.DeepCopy()
	status.Phase = corev1.PodFailed
	m.set(e, e.pod, *status)
}

// Forget says that no source wants the pod and that the runtime has nothing of
// it. Its status is kept only for as long as the API has the pod.
func (m *Manager) Forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.pods[uid]; e != nil {
		e.forgotten = true
		m.drop(e)
	}
}

// Status is the status of the pod of this UID, which is not that of a mirror
// pod, as it is written to the API but for the conditions of others.
func (m *Manager) Status(uid types.UID) (corev1.PodStatus, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.pods[uid]; e != nil && e.want != nil {
		return *e.want.DeepCopy(), true
	}
	return corev1.PodStatus{}, false
}

// Observed tells of a pod, or of a mirror pod, as the API now has it.
func (m *Manager) Observed(pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entry(uidHere(pod))
	if e.api != nil && e.api.UID == pod.UID {
		order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, e.api.ResourceVersion)
		switch {
		case err == nil && order < 0:
			// It is from before what was written last.
			return
		case err == nil && order == 0:
			e.api = pod
			return
		}
	}
	e.api = pod
	e.settled = false
	m.end(e)
	m.enqueue(e)
}

// Gone tells of a pod, or of a mirror pod, that the API has no more.
func (m *Manager) Gone(pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.pods[uidHere(pod)]; e != nil && e.api != nil && e.api.UID == pod.UID {
		m.lose(e)
	}
}

// lose notes that the API has the pod no more.
func (m *Manager) lose(e *entry) {
	mirror := isMirror(e.api)
	e.api = nil
	if e.finished && !mirror {
		e.forgotten = true
	}
	m.drop(e)
}

// drop lets go of what nobody can ask about any more.
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

// last is the last status that is known of the pod; nil for none.
func (e *entry) last() *corev1.PodStatus {
	switch {
	case e.want != nil:
		return e.want
	case e.anew:
		return &corev1.PodStatus{}
	case e.api != nil:
		return &e.api.Status
	default:
		return &e.pod.Status
	}
}

func isMirror(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

// uidHere is the UID that the API's pod has on this node: of a mirror pod that
// of its static pod, which is what its annotation says.
func uidHere(pod *corev1.Pod) types.UID {
	if uid, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]; ok {
		return types.UID(uid)
	}
	return pod.UID
}
