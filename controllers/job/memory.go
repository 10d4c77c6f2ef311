package job

import (
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// The events of a job's pods come in crowds. They lead to one look at the job,
// gather after the first of them, and pause after the look before: so its
// status is not written for each pod.
const (
	gather = 50 * time.Millisecond
	pause  = 500 * time.Millisecond
)

// memory is what a process remembers of jobs that have not finished. Nothing in
// it is needed: without it, a job is looked at earlier than it must be, and
// the pods that are gone are not considered in its backoff.
type memory struct {
	now func() time.Time

	mu   sync.Mutex
	jobs map[types.NamespacedName]memo
}

type memo struct {
	looked  time.Time
	uid     types.UID // of the job that backoff is of
	backoff *backoff
	// absent are pods that have no finalizer, though the cache may not know: the
	// answer to its removal got lost.
	absent sets.Set[types.UID]
}

func newMemory(now func() time.Time) *memory {
	return &memory{now: now, jobs: map[types.NamespacedName]memo{}}
}

// look notes that somebody looks at a job now.
func (m *memory) look(job types.NamespacedName) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	memo := m.jobs[job]
	memo.looked = m.now()
	m.jobs[job] = memo
	return memo.looked
}

// wait is the time until the next look that an event of a pod leads to.
func (m *memory) wait(job types.NamespacedName) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(gather, pause-m.now().Sub(m.jobs[job].looked))
}

// backoff is that of the job's pods at the last look; nil if there was none.
func (m *memory) backoff(job types.NamespacedName, uid types.UID) *backoff {
	m.mu.Lock()
	defer m.mu.Unlock()
	if memo := m.jobs[job]; memo.uid == uid {
		return memo.backoff
	}
	return nil
}

func (m *memory) setBackoff(job types.NamespacedName, uid types.UID, b backoff) {
	m.mu.Lock()
	defer m.mu.Unlock()
	memo := m.jobs[job]
	memo.uid, memo.backoff = uid, &b
	m.jobs[job] = memo
}

// addAbsent notes pods that have no finalizer.
func (m *memory) addAbsent(job types.NamespacedName, absent sets.Set[types.UID]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	memo := m.jobs[job]
	memo.absent = memo.absent.Union(absent)
	m.jobs[job] = memo
}

// withoutAbsent is the list with the pods that have no finalizer as they are. It
// forgets those that the list has so.
func (m *memory) withoutAbsent(job types.NamespacedName, list []*corev1.Pod) []*corev1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	memo := m.jobs[job]
	if len(memo.absent) == 0 {
		return list
	}
	left := sets.New[types.UID]()
	for i, pod := range list {
		if memo.absent.Has(pod.UID) && isTracked(pod) {
			left.Insert(pod.UID)
			list[i] = pod.DeepCopy()
			list[i].Finalizers = only(pod.Finalizers, func(f string) bool { return f != batchv1.JobTrackingFinalizer })
		}
	}
	memo.absent = left
	m.jobs[job] = memo
	return list
}

func (m *memory) forget(job types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.jobs, job)
}
