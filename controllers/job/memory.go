package job

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
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

func (m *memory) forget(job types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.jobs, job)
}
