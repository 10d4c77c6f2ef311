// Package ttlafterfinished deletes finished jobs when their
// ttlSecondsAfterFinished have passed (KEP-592).
package ttlafterfinished

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
)

// New declares the controller.
func New() controller.Controller {
	o := &options{concurrent: 5}
	return controller.Controller{
		Name:        name,
		Aliases:     []string{"ttl-after-finished-controller", "ttlafterfinished"},
		Reads:       []client.Object{&batchv1.Job{}},
		Permissions: []rbacv1.PolicyRule{controller.Can("batch", []string{"jobs"}, []string{"delete"})},
		Flags: func(fs *pflag.FlagSet) {
			fs.IntVar(&o.concurrent, concurrentFlag, o.concurrent, "How many finished jobs are looked at at the same time.")
		},
		Validate: func() []error { return controller.AtLeastOne(concurrentFlag, o.concurrent) },
		Setup:    o.setup,
	}
}

const (
	name           = "ttl-after-finished"
	concurrentFlag = "concurrent-ttl-after-finished-syncs"
)

type options struct {
	concurrent int
}

func (o *options) setup(_ context.Context, env *controller.Env) error {
	r := &reconciler{client: env.Client, live: env.Live, now: env.Clock.Now}
	return controller.Run(env, controller.Options{Name: name, Workers: o.concurrent}, r, controller.For(&batchv1.Job{}, predicate.NewPredicateFuncs(func(obj client.Object) bool {
		_, ok := expiry(obj.(*batchv1.Job))
		return ok
	})))
}

// reconciler reads jobs, and deletes those that have finished long enough ago.
type reconciler struct {
	client client.Client
	live   client.Reader
	now    func() time.Time
}

// Reconcile deletes the job if its time has come.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	job, result, err := r.expired(ctx, r.client, req)
	if job == nil || err != nil {
		return result, err
	}
	// The cache may not know yet that the user has given the job more time.
	if job, result, err = r.expired(ctx, r.live, req); job == nil || err != nil {
		return result, err
	}
	return reconcile.Result{}, r.delete(ctx, job)
}

// expired is the job if its time has come; otherwise the result says when.
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

// delete deletes the job after its pods, if it is the one that was looked at.
func (r *reconciler) delete(ctx context.Context, job *batchv1.Job) error {
	err := r.client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationForeground),
		client.Preconditions{UID: ptr.To(job.UID), ResourceVersion: ptr.To(job.ResourceVersion)})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return nil
}

// expiry is when the job is to be deleted. ok is false for a job that has not
// finished, lives for ever, or is being deleted.
func expiry(job *batchv1.Job) (at time.Time, ok bool) {
	ttl := job.Spec.TTLSecondsAfterFinished
	if ttl == nil || job.DeletionTimestamp != nil {
		return time.Time{}, false
	}
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Add(time.Duration(*ttl) * time.Second), true
		}
	}
	return time.Time{}, false
}
