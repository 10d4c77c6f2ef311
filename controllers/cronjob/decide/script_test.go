package decide_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/controllers/cronjob/decide"
	"svc.dev/svc/internal/golden"
)

// TestScripts plays the scripts of testdata. The commands:
//
//	now TIME          sets the clock
//	cronjob           creates the cron job of the spec, now
//	edit              merges the spec into that of the cron job
//	deleting          begins the deletion of the cron job
//	sync              makes a plan and does it
//	crash             does it, but stops before the status is written
//	run DURATION      syncs whenever a start is due; each job completes a minute later
//	finish JOB TYPE   ends a job: Complete or Failed
//	remove JOB        deletes a job, as a user does
//	jobs              prints the jobs
func TestScripts(t *testing.T) {
	golden.Run(t, func(t *testing.T) golden.Handler {
		m := &model{t: t}
		return m.do
	})
}

// model is a cron job with its jobs.
type model struct {
	t       *testing.T
	now     time.Time
	cronJob *batchv1.CronJob
	jobs    []*batchv1.Job
	uids    int
}

func (m *model) do(c golden.Command) string {
	switch c.Name {
	case "now":
		m.now = m.time(c.Text)
	case "cronjob":
		m.cronJob = &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report", CreationTimestamp: metav1.NewTime(m.now)}}
		m.edit(c.Body)
	case "edit":
		m.edit(c.Body)
	case "deleting":
		m.cronJob.DeletionTimestamp = &metav1.Time{Time: m.now}
	case "sync":
		_, printed := m.sync(true)
		return printed
	case "crash":
		_, printed := m.sync(false)
		return printed
	case "run":
		return m.run(c.Text)
	case "finish":
		m.finish(m.job(c.Args[0]), batchv1.JobConditionType(c.Args[1]))
	case "remove":
		job := m.job(c.Args[0])
		m.jobs = slices.DeleteFunc(m.jobs, func(j *batchv1.Job) bool { return j == job })
	case "jobs":
		var out strings.Builder
		for _, job := range m.jobs {
			fmt.Fprintf(&out, "%s %s %v\n", job.Name, job.Annotations[batchv1.CronJobScheduledTimestampAnnotation], job.Labels)
		}
		return out.String()
	default:
		m.t.Fatalf("unknown command %q", c.Name)
	}
	return ""
}

func (m *model) time(text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		m.t.Fatal(err)
	}
	return at
}

func (m *model) edit(spec string) {
	if err := yaml.UnmarshalStrict([]byte(spec), &m.cronJob.Spec); err != nil {
		m.t.Fatal(err)
	}
	if m.cronJob.Spec.TimeZone == nil { // that of the process is not the test's
		utc := "UTC"
		m.cronJob.Spec.TimeZone = &utc
	}
}

func (m *model) job(name string) *batchv1.Job {
	i := slices.IndexFunc(m.jobs, func(j *batchv1.Job) bool { return j.Name == name })
	if i < 0 {
		m.t.Fatalf("no job %s", name)
	}
	return m.jobs[i]
}

func (m *model) finish(job *batchv1.Job, outcome batchv1.JobConditionType) {
	job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: outcome, Status: corev1.ConditionTrue})
	if outcome == batchv1.JobComplete {
		job.Status.CompletionTime = &metav1.Time{Time: m.now}
	}
}

// sync makes a plan and does it, and returns what it did.
func (m *model) sync(writeStatus bool) (*decide.Plan, string) {
	plan := decide.Next(decide.Input{CronJob: m.cronJob, Jobs: m.jobs, Now: m.now})
	var out strings.Builder
	for _, e := range plan.Events {
		fmt.Fprintf(&out, "%s %s: %s\n", e.Type, e.Reason, e.Message)
	}
	for _, job := range slices.Concat(plan.Replaced, plan.History) {
		fmt.Fprintf(&out, "delete %s\n", job.Name)
		m.jobs = slices.DeleteFunc(m.jobs, func(j *batchv1.Job) bool { return j == job })
	}
	if job := plan.Start; job != nil {
		fmt.Fprintf(&out, "start %s of %s\n", job.Name, job.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
		m.uids++
		job.UID, job.CreationTimestamp = types.UID(fmt.Sprint(m.uids)), metav1.NewTime(m.now)
		job.Status.StartTime = &metav1.Time{Time: m.now}
		m.jobs = append(m.jobs, job)
		plan.Started(job)
	}
	if writeStatus {
		m.cronJob.Status = plan.Status
		var active []string
		for _, ref := range plan.Status.Active {
			active = append(active, ref.Name)
		}
		fmt.Fprintf(&out, "active %v, last scheduled %s, last successful %s\n", active, stamp(plan.Status.LastScheduleTime), stamp(plan.Status.LastSuccessfulTime))
	}
	if plan.RequeueAfter > 0 {
		fmt.Fprintf(&out, "again in %s\n", plan.RequeueAfter)
	}
	return plan, out.String()
}

func stamp(t *metav1.Time) string {
	if t == nil {
		return "never"
	}
	return t.UTC().Format(time.RFC3339)
}

// run prints the start times of a period.
func (m *model) run(period string) string {
	d, err := time.ParseDuration(period)
	if err != nil {
		m.t.Fatal(err)
	}
	var out strings.Builder
	for end := m.now.Add(d); ; {
		plan, _ := m.sync(true)
		if job := plan.Start; job != nil {
			fmt.Fprintf(&out, "%s %s\n", m.now.UTC().Format(time.RFC3339), job.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
			m.finish(job, batchv1.JobComplete)
		}
		if plan.RequeueAfter <= 0 || m.now.Add(plan.RequeueAfter).After(end) {
			m.now = end
			return out.String()
		}
		m.now = m.now.Add(plan.RequeueAfter)
	}
}
