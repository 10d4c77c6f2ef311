package cronjob

import (
	"encoding/json"
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

// scheduled is the schedule of a cron job, when it was changed to that one, and whether
// the cron job is suspended.
type scheduled struct {
	uid            types.UID
	schedule, zone string
	changed        time.Time
	suspended      bool
}

// at returns when the schedule of a cron job was changed; zero if it was not, or if the
// cron job was suspended since: the end of a suspension starts what was missed. It reports
// false, and remembers nothing, if the schedule was changed while the controller did not
// see the cron job: then missed decides.
func (c *changes) at(key types.NamespacedName, cronJob *batchv1.CronJob, now time.Time) (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := of(cronJob)
	before, ok := c.seen[key]
	switch known := ok && before.uid == s.uid; {
	case known && before.suspended && !s.suspended:
	case known && before.schedule == s.schedule && before.zone == s.zone:
		s.changed = before.changed
	case known:
		s.changed = now
	case decide.StartedByOtherSchedule(cronJob):
		return time.Time{}, false
	}
	c.remember(key, s)
	return s.changed, true
}

// missed returns when a schedule was changed that the controller did not see change: when
// the fields' manager set it, or else now, when the controller first sees the cron job.
// stored is the cron job with its managedFields, which the cache does not have.
func (c *changes) missed(key types.NamespacedName, cronJob, stored *batchv1.CronJob, now time.Time) time.Time {
	s := of(cronJob)
	s.changed = now
	if set := lastSet(stored); set.After(cronJob.Status.LastScheduleTime.Time) && set.Before(now) {
		s.changed = set
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remember(key, s)
	return s.changed
}

// of returns what is remembered of a cron job, as if its schedule had not changed.
func of(cronJob *batchv1.CronJob) scheduled {
	return scheduled{
		uid: cronJob.UID, schedule: cronJob.Spec.Schedule, zone: ptr.Deref(cronJob.Spec.TimeZone, ""),
		suspended: ptr.Deref(cronJob.Spec.Suspend, false),
	}
}

// remember records a cron job. The caller holds the lock.
func (c *changes) remember(key types.NamespacedName, s scheduled) {
	if c.seen == nil {
		c.seen = map[types.NamespacedName]scheduled{}
	}
	c.seen[key] = s
}

// lastSet returns when the schedule or the time zone was last set, as far as managedFields
// have it; zero if they do not. A manager that changed other fields later has a later time.
func lastSet(cronJob *batchv1.CronJob) time.Time {
	var schedule, zone time.Time
	first := func(owned bool, known *time.Time, at time.Time) {
		if owned && (known.IsZero() || at.Before(*known)) {
			*known = at
		}
	}
	for _, entry := range cronJob.ManagedFields {
		if entry.Time == nil || entry.FieldsV1 == nil || entry.Subresource != "" {
			continue
		}
		var fields struct {
			Spec map[string]json.RawMessage `json:"f:spec"`
		}
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue // fields of a later format, whose time is not known
		}
		first(fields.Spec["f:schedule"] != nil, &schedule, entry.Time.Time)
		first(fields.Spec["f:timeZone"] != nil, &zone, entry.Time.Time)
	}
	if zone.After(schedule) {
		return zone
	}
	return schedule
}

// forget forgets a cron job that is gone.
func (c *changes) forget(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.seen, key)
}
