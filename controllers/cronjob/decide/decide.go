// Package decide decides which jobs of a cron job start and which are deleted.
package decide

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/batch"
)

// Input is a cron job and the jobs that it controls.
type Input struct {
	CronJob *batchv1.CronJob
	// Jobs has all jobs that the status names as active, unless they are gone.
	Jobs []*batchv1.Job
	Now  time.Time
	// Changed is when the schedule was changed, or the controller first saw that it was;
	// zero if it was not.
	Changed time.Time
}

// Event is an event about the cron job.
type Event struct{ Type, Reason, Message string }

// Plan is what one sync does, in this order: it deletes Replaced, creates Start,
// deletes History, and writes the status.
type Plan struct {
	// Status is that before Start was created; see Started.
	Status batchv1.CronJobStatus
	Events []Event
	// Replaced are active jobs that the new one replaces.
	Replaced []*batchv1.Job
	// Start is the job to create, or nil.
	Start *batchv1.Job
	// ScheduledAt is the start time of Start.
	ScheduledAt time.Time
	// History are finished jobs beyond the limits.
	History []*batchv1.Job
	// RequeueAfter is the time to the next start; 0 if there is none.
	RequeueAfter time.Duration
}

// Next returns the plan of a sync.
func Next(in Input) *Plan {
	p := &Plan{Status: *in.CronJob.Status.DeepCopy()}
	due, at := p.due(in)
	p.observe(in, due)
	if in.CronJob.DeletionTimestamp == nil {
		p.History = history(in)
	}
	if due != "" {
		p.start(in, due, at)
	}
	return p
}

func (p *Plan) event(kind, reason, format string, args ...any) {
	p.Events = append(p.Events, Event{kind, reason, fmt.Sprintf(format, args...)})
}

// due returns the name and start time of the job that has to run now, and sets when
// the next one is due. Without one, the name is empty.
func (p *Plan) due(in Input) (name string, at time.Time) {
	c := in.CronJob
	if c.DeletionTimestamp != nil {
		return "", time.Time{}
	}
	s, why := parse(c.Spec.Schedule, c.Spec.TimeZone)
	if why != nil {
		p.event(corev1.EventTypeWarning, why.reason, "%s", why.message)
		return "", time.Time{}
	}
	if ptr.Deref(c.Spec.Suspend, false) {
		return "", time.Time{}
	}
	if batch.HasZone(c) { // of a release before 1.29
		p.event(corev1.EventTypeWarning, "UnsupportedSchedule", "CRON_TZ or TZ used in schedule %q is not officially supported, "+
			"see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details", c.Spec.Schedule)
	}
	s = s.from(lastStart(c))
	next := s.after(in.Now)
	if next.IsZero() {
		p.event(corev1.EventTypeWarning, "InvalidSchedule", "invalid schedule: %s : no time within five years matches it", c.Spec.Schedule)
	} else {
		p.RequeueAfter = next.Sub(in.Now)
	}
	at, many := s.latest(since(in), in.Now)
	if at.IsZero() {
		return "", time.Time{}
	}
	if many {
		p.event(corev1.EventTypeWarning, "TooManyMissedTimes",
			"too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew")
	}
	// In whole minutes, so that two controllers choose the same name.
	return fmt.Sprintf("%s-%d", c.Name, at.Unix()/60), at
}

// since returns the time after which start times count: the last one, or the creation
// of the cron job, but none before the starting deadline. Those of a new schedule that
// were before the change do not count: a job that is moved from 2 to 3 o'clock at noon
// does not run at noon.
func since(in Input) time.Time {
	c := in.CronJob
	t := lastStart(c)
	if s := c.Spec.StartingDeadlineSeconds; s != nil {
		if deadline := in.Now.Add(-time.Duration(*s) * time.Second); deadline.After(t) {
			t = deadline
		}
	}
	if in.Changed.After(t) {
		t = in.Changed
	}
	return t
}

// lastStart returns the last start time of a cron job, or its creation.
func lastStart(c *batchv1.CronJob) time.Time {
	if last := c.Status.LastScheduleTime; last != nil {
		return last.Time
	}
	return c.CreationTimestamp.Time
}

// StartedByOtherSchedule reports whether the last start of a cron job was not one of its
// schedule, which was changed since.
func StartedByOtherSchedule(c *batchv1.CronJob) bool {
	last := c.Status.LastScheduleTime
	if last == nil {
		return false
	}
	s, why := parse(c.Spec.Schedule, c.Spec.TimeZone)
	return why == nil && !s.has(last.Time)
}

// observe updates the list of active jobs and the time of the last success.
func (p *Plan) observe(in Input, due string) {
	jobs := map[types.UID]*batchv1.Job{}
	for _, job := range in.Jobs {
		jobs[job.UID] = job
	}
	p.Status.Active = slices.DeleteFunc(p.Status.Active, func(ref corev1.ObjectReference) bool {
		job := jobs[ref.UID]
		if job == nil {
			p.event(corev1.EventTypeNormal, "MissingJob", "Active job went missing: %v", ref.Name)
			return true
		}
		outcome := finished(job)
		if outcome != "" {
			p.event(corev1.EventTypeNormal, "SawCompletedJob", "Saw completed job: %s, condition: %v", job.Name, outcome)
		}
		return outcome != ""
	})
	for _, job := range in.Jobs {
		outcome := finished(job)
		if outcome == "" && job.Name != due && !p.active(job.UID) {
			p.event(corev1.EventTypeWarning, "UnexpectedJob", "Saw a job that the controller did not create or forgot: %s", job.Name)
		}
		if at := job.Status.CompletionTime; outcome == batchv1.JobComplete && at != nil &&
			(p.Status.LastSuccessfulTime == nil || p.Status.LastSuccessfulTime.Before(at)) {
			p.Status.LastSuccessfulTime = at.DeepCopy()
		}
	}
}

// active reports whether the status names the job as active.
func (p *Plan) active(uid types.UID) bool {
	return slices.ContainsFunc(p.Status.Active, func(ref corev1.ObjectReference) bool { return ref.UID == uid })
}

// finished returns the condition with which a job has finished, or "".
func finished(job *batchv1.Job) batchv1.JobConditionType {
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return c.Type
		}
	}
	return ""
}

// start plans the start of the due job by the concurrency policy.
func (p *Plan) start(in Input, name string, at time.Time) {
	// A job of this start exists if the controller stopped before it wrote the status.
	if i := slices.IndexFunc(in.Jobs, func(job *batchv1.Job) bool { return job.Name == name }); i >= 0 {
		p.started(in.Jobs[i], at)
		return
	}
	if last := in.CronJob.Status.LastScheduleTime; last != nil && last.Time.Equal(at) {
		return
	}
	switch in.CronJob.Spec.ConcurrencyPolicy {
	case batchv1.ForbidConcurrent:
		if len(p.Status.Active) > 0 {
			p.event(corev1.EventTypeNormal, "JobAlreadyActive", "Not starting job because prior execution is running and concurrency policy is Forbid")
			return
		}
	case batchv1.ReplaceConcurrent:
		for _, job := range in.Jobs {
			if p.active(job.UID) {
				p.Replaced = append(p.Replaced, job)
			}
		}
	}
	p.Start, p.ScheduledAt = jobOf(in.CronJob, name, at), at
}

// Started records in the status that job, which is Start or was found in its place,
// runs instead of those that it replaces.
func (p *Plan) Started(job *batchv1.Job) {
	p.Status.Active = slices.DeleteFunc(p.Status.Active, func(ref corev1.ObjectReference) bool {
		return slices.ContainsFunc(p.Replaced, func(replaced *batchv1.Job) bool { return replaced.UID == ref.UID })
	})
	p.started(job, p.ScheduledAt)
}

func (p *Plan) started(job *batchv1.Job, at time.Time) {
	if finished(job) == "" && !p.active(job.UID) {
		p.Status.Active = append(p.Status.Active, corev1.ObjectReference{
			APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job",
			Namespace: job.Namespace, Name: job.Name, UID: job.UID, ResourceVersion: job.ResourceVersion,
		})
	}
	if p.Status.LastScheduleTime == nil || p.Status.LastScheduleTime.Time.Before(at) {
		p.Status.LastScheduleTime = &metav1.Time{Time: at}
	}
}

// jobOf returns the job of a start time. It has no owner reference yet.
func jobOf(c *batchv1.CronJob, name string, at time.Time) *batchv1.Job {
	template := c.Spec.JobTemplate.DeepCopy()
	annotations := maps.Clone(template.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[batchv1.CronJobScheduledTimestampAnnotation] = at.Format(time.RFC3339)
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name, Labels: template.Labels, Annotations: annotations},
		Spec:       template.Spec,
	}
}

// history returns the finished jobs beyond the limits of the cron job, oldest first.
func history(in Input) []*batchv1.Job {
	var beyond []*batchv1.Job
	for _, of := range []struct {
		outcome batchv1.JobConditionType
		limit   *int32
	}{
		{batchv1.JobComplete, in.CronJob.Spec.SuccessfulJobsHistoryLimit},
		{batchv1.JobFailed, in.CronJob.Spec.FailedJobsHistoryLimit},
	} {
		if of.limit == nil {
			continue
		}
		var jobs []*batchv1.Job
		for _, job := range in.Jobs {
			if finished(job) == of.outcome && job.DeletionTimestamp == nil {
				jobs = append(jobs, job)
			}
		}
		slices.SortFunc(jobs, func(a, b *batchv1.Job) int {
			return cmp.Or(startedAt(a).Compare(startedAt(b)), cmp.Compare(a.Name, b.Name))
		})
		if excess := len(jobs) - int(*of.limit); excess > 0 {
			beyond = append(beyond, jobs[:excess]...)
		}
	}
	return beyond
}

// startedAt returns when a job started or, if it finished without having started, was
// created.
func startedAt(job *batchv1.Job) time.Time {
	if job.Status.StartTime == nil {
		return job.CreationTimestamp.Time
	}
	return job.Status.StartTime.Time
}
