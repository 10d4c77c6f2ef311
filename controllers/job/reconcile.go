package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
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
	"svc.dev/svc/controllers/pods"
)

// reconciler reads jobs and their pods; it alone writes the status of jobs,
// creates and deletes their pods, and puts and takes the finalizer
// batch.kubernetes.io/job-tracking.
type reconciler struct {
	client  client.Client
	live    client.Reader
	pods    pods.Control
	kind    schema.GroupVersionKind // of jobs
	memory  *memory
	unknown expectations.UnknownOutcomes
}

// soon is the time until the next look at a job with more to do than one look
// may do.
const soon = time.Millisecond

// Reconcile brings a job nearer to its end.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	job := &batchv1.Job{}
	if err := r.client.Get(ctx, req.NamespacedName, job); err != nil {
		r.forget(req.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if isFinished(job) || isManagedElsewhere(job) {
		r.forget(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	now := r.memory.look(req.NamespacedName)
	controlled, err := r.controlled(ctx, job)
	if err != nil {
		return reconcile.Result{}, err
	}
	p := decide(view{job: job, pods: controlled, backoff: r.memory.backoff(req.NamespacedName, job.UID), now: now})
	if err := r.carryOut(ctx, p); err != nil {
		return reconcile.Result{}, err
	}
	if p.more {
		p.again = soon
	}
	return reconcile.Result{RequeueAfter: p.again}, nil
}

func (r *reconciler) forget(job types.NamespacedName) {
	r.memory.forget(job)
	r.unknown.Forget(job)
}

// isManagedElsewhere tells whether another controller is to run the job (KEP-4368).
func isManagedElsewhere(job *batchv1.Job) bool {
	return ptr.Deref(job.Spec.ManagedBy, batchv1.JobControllerName) != batchv1.JobControllerName
}

// controlled are the pods that the job controls, after it has adopted and
// released what it must.
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
	owned = r.memory.withoutAbsent(client.ObjectKeyFromObject(job), owned)
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
		if isTracked(pod) {
			continue
		}
		adopted := metav1.GetControllerOfNoCopy(pod) == nil
		// The finalizer of an active pod has gone if a crash kept the pod from
		// being deleted after that. If it is to stay now, it must count.
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

// byController are the pods that an object controls. The cache owns them.
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

// carryOut does what the plan says.
func (r *reconciler) carryOut(ctx context.Context, p *plan) error {
	key := client.ObjectKeyFromObject(p.job)
	updated := p.job.DeepCopy()
	tell := p.notices
	if p.record {
		if err := r.write(ctx, updated, p.status, tell); err != nil {
			return client.IgnoreNotFound(err)
		}
		tell = nil
	}
	r.memory.setBackoff(key, p.job.UID, p.backoff)

	o := outcome{gone: sets.New[types.UID](), released: sets.New[types.UID](), missed: sets.New[types.UID]()}
	errs := []error{r.create(ctx, p, &o), r.delete(ctx, p, &o), r.release(ctx, p, &o)}

	status, events := p.settle(o)
	if !sameStatus(&status, &updated.Status) {
		errs = append(errs, client.IgnoreNotFound(r.write(ctx, updated, status, append(tell, events...))))
	}
	return errors.Join(errs...)
}

// write writes the status into the API server and into job, and then tells the
// events.
func (r *reconciler) write(ctx context.Context, job *batchv1.Job, status batchv1.JobStatus, events []notice) error {
	status.DeepCopyInto(&job.Status)
	if err := r.client.Status().Update(ctx, job); err != nil {
		return fmt.Errorf("status of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	for _, e := range events {
		r.pods.Recorder.Event(job, e.kind, e.reason, e.message)
	}
	return nil
}

func (r *reconciler) create(ctx context.Context, p *plan, o *outcome) (err error) {
	o.created, err = pods.InBatches(len(p.create), 1, func(i int) error {
		err := r.pods.Create(ctx, p.job, p.create[i].pod(p.job, r.kind))
		r.unknown.Record(client.ObjectKeyFromObject(p.job), err)
		return err
	})
	if pods.NamespaceGoes(err) {
		return nil
	}
	return err
}

// parallel is how many deletions or patches begin at the same time.
const parallel = 64

// delete deletes the surplus, of which nothing is to be counted, and stops what
// runs of a job that ends.
func (r *reconciler) delete(ctx context.Context, p *plan, o *outcome) error {
	doomed := slices.Concat(p.surplus, p.stop)
	gone := make([]bool, len(doomed))
	_, err := pods.InBatches(len(doomed), parallel, func(i int) error {
		pod := doomed[i]
		if i < len(p.surplus) && isTracked(pod) {
			if result, err := drop(ctx, r.client, r.live, pod); err != nil || result == ended {
				return err
			}
		}
		err := r.pods.Delete(ctx, p.job, pod)
		gone[i] = err == nil
		return err
	})
	for i, pod := range doomed {
		if gone[i] {
			o.gone.Insert(pod.UID)
		}
	}
	return err
}

// release takes the finalizers from pods whose end is written down. Those that
// could not be stopped keep it.
func (r *reconciler) release(ctx context.Context, p *plan, o *outcome) error {
	stop := sets.New[types.UID]()
	for _, pod := range p.stop {
		stop.Insert(pod.UID)
	}
	list := only(p.release, func(pod *corev1.Pod) bool { return o.gone.Has(pod.UID) || !stop.Has(pod.UID) })
	results, done := make([]untracked, len(list)), make([]bool, len(list))
	_, err := pods.InBatches(len(list), parallel, func(i int) (err error) {
		results[i], err = p.take(list[i])(ctx, r.client, r.live, list[i])
		done[i] = err == nil && results[i] != ended
		return err
	})
	gone := sets.New[types.UID]()
	for i, pod := range list {
		if !done[i] {
			continue
		}
		if results[i] == absent {
			gone.Insert(pod.UID)
		}
		if results[i] == absent && p.first() && p.fresh.Has(pod.UID) {
			o.missed.Insert(pod.UID)
		} else {
			o.released.Insert(pod.UID)
		}
	}
	r.memory.addAbsent(client.ObjectKeyFromObject(p.job), gone)
	return err
}

// take is how the pod loses its finalizer: one that does not count only as long
// as it runs.
func (p *plan) take(pod *corev1.Pod) func(context.Context, client.Client, client.Reader, *corev1.Pod) (untracked, error) {
	if pods.IsTerminal(pod) || p.uncounted.Has(pod.UID) || p.fresh.Has(pod.UID) {
		return untrack
	}
	return drop
}

// track gives the finalizer to a pod that is as it was read.
func (r *reconciler) track(ctx context.Context, pod *corev1.Pod) error {
	patched := pod.DeepCopy()
	patched.Finalizers = append(patched.Finalizers, batchv1.JobTrackingFinalizer)
	patch := client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, patched, patch); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finalizer of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
