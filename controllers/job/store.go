package job

import (
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"svc.dev/svc/controllers/job/decide"
)

// The events of a job's pods are batched, so that its status is not written for
// each pod: a sync begins batchPeriod after the first event, and not before
// minSyncInterval after the previous sync.
const (
	batchPeriod     = 50 * time.Millisecond
	minSyncInterval = 500 * time.Millisecond
)

// store is the in-memory state of jobs that have not finished. Correctness does
// not depend on it: without it, a job is synced earlier, and pods that were
// deleted do not count for its backoff.
type store struct {
	now func() time.Time

	mu   sync.Mutex
	jobs map[types.NamespacedName]jobState
}

type jobState struct {
	synced  time.Time
	uid     types.UID // of the job that backoff belongs to
	backoff *decide.Backoff
	// untracked are pods that had no finalizer when it was to be removed, which
	// the cache may not have yet: the response to its removal was lost.
	untracked sets.Set[types.UID]
}

func newStore(now func() time.Time) *store {
	return &store{now: now, jobs: map[types.NamespacedName]jobState{}}
}

// startSync records the time of a sync and returns it.
func (s *store) startSync(job types.NamespacedName) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.jobs[job]
	state.synced = s.now()
	s.jobs[job] = state
	return state.synced
}

// syncDelay returns the time until the sync that an event of a pod requests.
func (s *store) syncDelay(job types.NamespacedName) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(batchPeriod, minSyncInterval-s.now().Sub(s.jobs[job].synced))
}

// backoff returns that of the job's last sync; nil if there was none.
func (s *store) backoff(job types.NamespacedName, uid types.UID) *decide.Backoff {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.jobs[job]; state.uid == uid {
		return state.backoff
	}
	return nil
}

func (s *store) setBackoff(job types.NamespacedName, uid types.UID, b decide.Backoff) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.jobs[job]
	state.uid, state.backoff = uid, &b
	s.jobs[job] = state
}

// addUntracked records pods that have no finalizer.
func (s *store) addUntracked(job types.NamespacedName, untracked sets.Set[types.UID]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.jobs[job]
	state.untracked = state.untracked.Union(untracked)
	s.jobs[job] = state
}

// withoutRemovedFinalizers returns the list without the finalizers that are known
// to be removed. It forgets pods that the list has without the finalizer.
func (s *store) withoutRemovedFinalizers(job types.NamespacedName, list []*corev1.Pod) []*corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.jobs[job]
	if len(state.untracked) == 0 {
		return list
	}
	left := sets.New[types.UID]()
	for i, pod := range list {
		if state.untracked.Has(pod.UID) && decide.IsTracked(pod) {
			left.Insert(pod.UID)
			list[i] = pod.DeepCopy()
			list[i].Finalizers = slices.DeleteFunc(list[i].Finalizers, func(f string) bool { return f == batchv1.JobTrackingFinalizer })
		}
	}
	state.untracked = left
	s.jobs[job] = state
	return list
}

func (s *store) forget(job types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.jobs, job)
}
