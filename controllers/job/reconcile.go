package job

import (
	"context"
	"errors"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/adoption"
	"svc.dev/svc/controllers/expectations"
	"svc.dev/svc/controllers/index"
	"svc.dev/svc/controllers/job/decide"
	"svc.dev/svc/controllers/pods"
)

// reconciler reads jobs and their pods; it alone writes the status of jobs,
// creates and deletes their pods, and adds and removes the finalizer
// batch.kubernetes.io/job-tracking.
type reconciler struct {
	client  client.Client
	live    client.Reader
	pods    pods.Control
	kind    schema.GroupVersionKind // of jobs
	store   *store
	metrics *jobMetrics
	// groups is nil if the pods of jobs get no groups.
	groups  *groups
	unknown expectations.UnknownOutcomes
}

// Reconcile syncs a job.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	job := &batchv1.Job{}
	if err := r.client.Get(ctx, req.NamespacedName, job); err != nil {
		r.forget(req.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if decide.IsFinished(job) || isManagedElsewhere(job) {
		r.forget(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	now := r.store.startSync(req.NamespacedName)
	controlled, err := r.controlled(ctx, job)
	if err != nil {
		return reconcile.Result{}, err
	}
	group, err := r.groups.ensure(ctx, job, controlled)
	if err != nil {
		return reconcile.Result{}, err
	}
	plan := decide.Next(decide.Input{
		Job: job, Pods: controlled, PreviousBackoff: r.store.backoff(req.NamespacedName, job.UID), Now: now,
	})
	err = r.execute(ctx, job, group, plan)
	r.metrics.synced(job, plan, r.store.now().Sub(now), err)
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: plan.RequeueAfter}, nil
}

func (r *reconciler) forget(job types.NamespacedName) {
	r.store.forget(job)
	r.unknown.Forget(job)
}

// isManagedElsewhere reports whether another controller manages the job (KEP-4368).
func isManagedElsewhere(job *batchv1.Job) bool {
	return ptr.Deref(job.Spec.ManagedBy, batchv1.JobControllerName) != batchv1.JobControllerName
}

// controlled returns the pods that the job controls, after it has adopted and
// released pods by its selector.
func (r *reconciler) controlled(ctx context.Context, job *batchv1.Job) ([]*corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(job.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("selector of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	owned, err := r.byController(ctx, job.Namespace, string(job.UID))
	if err != nil {
		return nil, err
	}
	if owned, err = r.unknown.Pods(ctx, r.live, job, selector, owned); err != nil {
		return nil, err
	}
	owned = r.store.withoutRemovedFinalizers(client.ObjectKeyFromObject(job), owned)
	orphans, err := r.byController(ctx, job.Namespace, index.NoController)
	if err != nil {
		return nil, err
	}
	claimed, err := adoption.Sync(ctx, adoption.Adopter{
		Client: r.client, Live: r.live, Owner: job, Selector: selector, Finalizer: batchv1.JobTrackingFinalizer,
	}, append(owned, orphans...))
	if err != nil {
		return nil, err
	}
	for i, pod := range claimed {
		if decide.IsTracked(pod) {
			continue
		}
		adopted := metav1.GetControllerOfNoCopy(pod) == nil
		// An active pod lacks the finalizer if the process crashed between removing
		// the finalizer and deleting the pod. The pod may stay now: it must count.
		lost := pods.IsActive(pod) && job.DeletionTimestamp == nil
		if lost && !adopted {
			if err := r.track(ctx, pod); err != nil {
				return nil, err
			}
		}
		if lost || adopted {
			claimed[i] = pod.DeepCopy()
			claimed[i].Finalizers = append(claimed[i].Finalizers, batchv1.JobTrackingFinalizer)
		}
	}
	return claimed, nil
}

// byController returns the pods that an object controls. The cache owns them.
func (r *reconciler) byController(ctx context.Context, namespace, uid string) ([]*corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := r.client.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{index.ByController(&corev1.Pod{}).Name: uid}); err != nil {
		return nil, err
	}
	found := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		found[i] = &list.Items[i]
	}
	return found, nil
}

// execute executes the plan. New pods get the group, unless it is nil.
func (r *reconciler) execute(ctx context.Context, job *batchv1.Job, group *schedulingv1beta1.PodGroup, plan *decide.Plan) error {
	key := client.ObjectKeyFromObject(job)
	updated := job.DeepCopy()
	events := plan.Events
	if plan.StatusFirst {
		if err := r.updateStatus(ctx, updated, plan.Status, events); err != nil {
			return client.IgnoreNotFound(err)
		}
		events = nil
	}
	r.store.setBackoff(key, job.UID, plan.Backoff)

	o := decide.Outcome{Deleted: sets.New[types.UID](), Released: sets.New[types.UID](), Untracked: sets.New[types.UID]()}
	errs := []error{r.create(ctx, job, group, plan.Create, &o), r.delete(ctx, job, plan.Delete, &o), r.release(ctx, key, plan.Release, &o)}

	status, settled := plan.Settle(o)
	if !apiequality.Semantic.DeepEqual(&status, &updated.Status) {
		errs = append(errs, client.IgnoreNotFound(r.updateStatus(ctx, updated, status, append(events, settled...))))
	}
	return errors.Join(errs...)
}

// updateStatus writes the status to the API server and into job, and then records
// the events.
func (r *reconciler) updateStatus(ctx context.Context, job *batchv1.Job, status batchv1.JobStatus, events []decide.Event) error {
	before := job.Status
	status.DeepCopyInto(&job.Status)
	if err := r.client.Status().Update(ctx, job); err != nil {
		return fmt.Errorf("update status of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	r.metrics.written(job, &before, &status)
	for _, e := range events {
		r.pods.Recorder.Event(job, e.Type, e.Reason, e.Message)
	}
	return nil
}

func (r *reconciler) create(ctx context.Context, job *batchv1.Job, group *schedulingv1beta1.PodGroup, replicas []decide.Replica, o *decide.Outcome) (err error) {
	o.Created, err = pods.InBatches(len(replicas), 1, func(i int) error {
		pod := replicas[i].Pod(job, r.kind)
		join(pod, group)
		err := r.pods.Create(ctx, job, pod)
		r.unknown.Record(client.ObjectKeyFromObject(job), err)
		return err
	})
	if pods.NamespaceTerminates(err) {
		return nil
	}
	return err
}

// parallel is the number of deletions or patches that begin at the same time.
const parallel = 64

func (r *reconciler) delete(ctx context.Context, job *batchv1.Job, deletions []decide.Deletion, o *decide.Outcome) error {
	deleted := make([]bool, len(deletions))
	_, err := pods.InBatches(len(deletions), parallel, func(i int) error {
		pod := deletions[i].Pod
		if deletions[i].UntrackFirst {
			if result, err := untrackRunning(ctx, r.client, r.live, pod); err != nil || result == kept {
				return err
			}
		}
		err := r.pods.Delete(ctx, job, pod)
		deleted[i] = err == nil
		return err
	})
	for i := range deletions {
		if deleted[i] {
			o.Deleted.Insert(deletions[i].Pod.UID)
		}
	}
	return err
}

func (r *reconciler) release(ctx context.Context, job types.NamespacedName, releases []decide.Release, o *decide.Outcome) error {
	due := slices.DeleteFunc(slices.Clone(releases), func(d decide.Release) bool { return d.AfterDelete && !o.Deleted.Has(d.Pod.UID) })
	results := make([]untracked, len(due))
	done := make([]bool, len(due))
	_, err := pods.InBatches(len(due), parallel, func(i int) (err error) {
		remove := untrack
		if due[i].OnlyIfRunning {
			remove = untrackRunning
		}
		results[i], err = remove(ctx, r.client, r.live, due[i].Pod)
		done[i] = err == nil
		return err
	})
	for i := range due {
		switch uid := due[i].Pod.UID; {
		case !done[i]:
		case results[i] == removed:
			o.Released.Insert(uid)
		case results[i] == absent:
			o.Untracked.Insert(uid)
		}
	}
	r.store.addUntracked(job, o.Untracked)
	return err
}

// track adds the finalizer to a pod. It fails with a conflict if the pod has
// changed since it was read.
func (r *reconciler) track(ctx context.Context, pod *corev1.Pod) error {
	patched := pod.DeepCopy()
	patched.Finalizers = append(patched.Finalizers, batchv1.JobTrackingFinalizer)
	patch := client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, patched, patch); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finalizer of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
