package cronjob

import (
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"svc.dev/svc/controllers/cronjob/decide"
)

// changes knows since when cron jobs have their schedules, if that changed since their
// last start.
type changes struct {
	mu   sync.Mutex
	seen map[types.NamespacedName]scheduled
}

// scheduled is the schedule of a cron job, and when it was changed to that one.
type scheduled struct {
	uid            types.UID
	schedule, zone string
	changed        time.Time
}

// at returns when the schedule of a cron job was changed; zero if it was not. For a change
// that the controller did not see, because it did not run, it returns when it first saw
// the cron job.
func (c *changes) at(key types.NamespacedName, cronJob *batchv1.CronJob, now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := scheduled{uid: cronJob.UID, schedule: cronJob.Spec.Schedule, zone: ptr.Deref(cronJob.Spec.TimeZone, "")}
	before, ok := c.seen[key]
	switch known := ok && before.uid == s.uid; {
	case known && before.schedule == s.schedule && before.zone == s.zone:
		s.changed = before.changed
	case known || decide.StartedByOtherSchedule(cronJob):
		s.changed = now
	}
	if c.seen == nil {
		c.seen = map[types.NamespacedName]scheduled{}
	}
	c.seen[key] = s
	return s.changed
}

// forget forgets a cron job that is gone.
func (c *changes) forget(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.seen, key)
}
