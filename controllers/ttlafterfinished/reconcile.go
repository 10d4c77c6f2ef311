package ttlafterfinished

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// reconciler reads jobs, and deletes finished ones whose time to live has expired.
type reconciler struct {
	client client.Client
	live   client.Reader
	now    func() time.Time
}

// Reconcile deletes the job if its time to live has expired.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	job, result, err := r.expired(ctx, r.client, req)
	if job == nil || err != nil {
		return result, err
	}
	// The user may have extended the time to live, and the cache be behind.
	if job, result, err = r.expired(ctx, r.live, req); job == nil || err != nil {
		return result, err
	}
	return reconcile.Result{}, r.delete(ctx, job)
}

// expired returns the job if its time to live has expired. Otherwise the job is
// nil, and the result requeues it for its expiry.
func (r *reconciler) expired(ctx context.Context, from client.Reader, req reconcile.Request) (*batchv1.Job, reconcile.Result, error) {
	job := &batchv1.Job{}
	if err := from.Get(ctx, req.NamespacedName, job); err != nil {
		return nil, reconcile.Result{}, client.IgnoreNotFound(err)
	}
	at, ok := expiry(job)
	if !ok {
		return nil, reconcile.Result{}, nil
	}
	if left := at.Sub(r.now()); left > 0 {
		return nil, reconcile.Result{RequeueAfter: left}, nil
	}
	return job, reconcile.Result{}, nil
}

// delete deletes the job in the foreground, after its pods, if it has not changed
// since it was read.
func (r *reconciler) delete(ctx context.Context, job *batchv1.Job) error {
	err := r.client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationForeground),
		client.Preconditions{UID: ptr.To(job.UID), ResourceVersion: ptr.To(job.ResourceVersion)})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return nil
}
