package cronjob

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/cronjob/decide"
	"svc.dev/svc/controllers/index"
	"svc.dev/svc/controllers/pods"
)

// reconciler reads cron jobs and their jobs; it alone writes the status of cron jobs,
// and creates and deletes their jobs.
type reconciler struct {
	client   client.Client
	live     client.Reader
	recorder record.EventRecorder
	kind     schema.GroupVersionKind // of cron jobs
	now      func() time.Time
	skew     prometheus.Histogram
	changes  changes
}

// newSkew returns the metric of how late jobs are created.
func newSkew() prometheus.Histogram {
	return controller.Registered(prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "cronjob_controller_job_creation_skew_duration_seconds",
		Help:    "[STABLE] Time between when a cronjob is scheduled to be run, and when the corresponding job is created",
		Buckets: prometheus.ExponentialBuckets(1, 2, 10),
	}))
}

// Reconcile syncs a cron job.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	cronJob := &batchv1.CronJob{}
	if err := r.client.Get(ctx, req.NamespacedName, cronJob); err != nil {
		if apierrors.IsNotFound(err) {
			r.changes.forget(req.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	jobs, err := r.jobs(ctx, cronJob)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := r.now()
	changed, err := r.changed(ctx, cronJob, now)
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	plan := decide.Next(decide.Input{CronJob: cronJob, Jobs: jobs, Now: now, Changed: changed})
	for _, e := range plan.Events {
		r.recorder.Event(cronJob, e.Type, e.Reason, e.Message)
	}
	err = r.execute(ctx, cronJob, plan)
	if !apiequality.Semantic.DeepEqual(plan.Status, cronJob.Status) {
		updated := cronJob.DeepCopy()
		updated.Status = plan.Status
		if failed := r.client.Status().Update(ctx, updated); client.IgnoreNotFound(failed) != nil {
			err = errors.Join(err, fmt.Errorf("update status of cron job %s: %w", req, failed))
		}
	}
	return reconcile.Result{RequeueAfter: plan.RequeueAfter}, err
}

// changed returns when the schedule of a cron job was changed since its last start; zero if
// it was not.
func (r *reconciler) changed(ctx context.Context, cronJob *batchv1.CronJob, now time.Time) (time.Time, error) {
	key := client.ObjectKeyFromObject(cronJob)
	if at, seen := r.changes.at(key, cronJob, now); seen {
		return at, nil
	}
	stored := &batchv1.CronJob{}
	if err := r.live.Get(ctx, key, stored); err != nil {
		return time.Time{}, fmt.Errorf("read cron job %s, whose schedule was changed: %w", key, err)
	}
	return r.changes.missed(key, cronJob, stored, now), nil
}

// jobs returns the jobs that the cron job controls. Those that its status names as
// active are read from the API server if the cache does not have them: it may be behind
// that of cron jobs.
func (r *reconciler) jobs(ctx context.Context, cronJob *batchv1.CronJob) ([]*batchv1.Job, error) {
	list := &batchv1.JobList{}
	if err := r.client.List(ctx, list, client.InNamespace(cronJob.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{index.ByController(&batchv1.Job{}).Name: string(cronJob.UID)}); err != nil {
		return nil, err
	}
	cached := map[string]bool{}
	var jobs []*batchv1.Job
	for i := range list.Items {
		jobs = append(jobs, &list.Items[i])
		cached[list.Items[i].Name] = true
	}
	for _, ref := range cronJob.Status.Active {
		if cached[ref.Name] {
			continue
		}
		job := &batchv1.Job{}
		err := r.live.Get(ctx, client.ObjectKey{Namespace: cronJob.Namespace, Name: ref.Name}, job)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil && metav1.IsControlledBy(job, cronJob) {
			jobs = append(jobs, job)
		}
	}
	return jobs, nil
}

// execute creates and deletes the jobs of the plan. The new job is created only when all
// that it replaces are deleted.
func (r *reconciler) execute(ctx context.Context, cronJob *batchv1.CronJob, plan *decide.Plan) error {
	if err := r.delete(ctx, cronJob, plan.Replaced); err != nil {
		return err
	}
	var created error
	if plan.Start != nil {
		created = r.create(ctx, cronJob, plan)
	}
	return errors.Join(created, r.delete(ctx, cronJob, plan.History))
}

func (r *reconciler) create(ctx context.Context, cronJob *batchv1.CronJob, plan *decide.Plan) error {
	job := plan.Start
	job.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cronJob, r.kind)}
	err := r.client.Create(ctx, job)
	switch {
	case err == nil:
		r.skew.Observe(r.now().Sub(plan.ScheduledAt).Seconds())
		r.recorder.Eventf(cronJob, corev1.EventTypeNormal, "SuccessfulCreate", "Created job %v", job.Name)
	case pods.NamespaceTerminates(err):
		return nil
	case apierrors.IsAlreadyExists(err):
		existing := &batchv1.Job{}
		if err := r.live.Get(ctx, client.ObjectKeyFromObject(job), existing); err != nil {
			return fmt.Errorf("read job %s/%s, which exists: %w", job.Namespace, job.Name, err)
		}
		if !metav1.IsControlledBy(existing, cronJob) {
			r.recorder.Eventf(cronJob, corev1.EventTypeWarning, "FailedCreate", "Error creating job: job %s exists and belongs to another owner", job.Name)
			return nil
		}
		job = existing
	default:
		r.recorder.Eventf(cronJob, corev1.EventTypeWarning, "FailedCreate", "Error creating job: %v", err)
		return fmt.Errorf("create job %s/%s: %w", job.Namespace, job.Name, err)
	}
	plan.Started(job)
	return nil
}

// delete deletes jobs, and their pods after them.
func (r *reconciler) delete(ctx context.Context, cronJob *batchv1.CronJob, jobs []*batchv1.Job) error {
	var errs []error
	for _, job := range jobs {
		err := r.client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: ptr.To(job.UID)})
		switch {
		case err == nil:
			r.recorder.Eventf(cronJob, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted job %v", job.Name)
		case client.IgnoreNotFound(err) != nil:
			r.recorder.Eventf(cronJob, corev1.EventTypeWarning, "FailedDelete", "Deleted job: %v", err)
			errs = append(errs, fmt.Errorf("delete job %s/%s: %w", job.Namespace, job.Name, err))
		}
	}
	return errors.Join(errs...)
}
