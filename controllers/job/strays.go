package job

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/index"
	"svc.dev/svc/controllers/pods"
)

// stray names pods that nobody counts any more: those of a job that is gone or
// has finished, or one pod that nothing controls.
type stray struct {
	namespace string
	job       string
	uid       types.UID
	pod       string
}

func (s stray) jobKey() types.NamespacedName {
	return types.NamespacedName{Namespace: s.namespace, Name: s.job}
}

// wanted tells whether the job by the stray's name still counts its pods.
func (s stray) wanted(job *batchv1.Job) bool {
	return job.UID == s.uid && (!isFinished(job) || isManagedElsewhere(job))
}

// strays reads jobs and pods; it alone takes the finalizer
// batch.kubernetes.io/job-tracking from pods that no job will count.
type strays struct {
	client client.Client
	live   client.Reader
}

// Reconcile frees stray pods.
func (s *strays) Reconcile(ctx context.Context, req stray) (reconcile.Result, error) {
	list := &corev1.PodList{}
	if req.pod != "" {
		// The cache may not know yet that a job has adopted it.
		pod := corev1.Pod{}
		if err := s.live.Get(ctx, types.NamespacedName{Namespace: req.namespace, Name: req.pod}, &pod); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		if metav1.GetControllerOfNoCopy(&pod) != nil {
			return reconcile.Result{}, nil
		}
		list.Items = append(list.Items, pod)
	} else {
		if wanted, err := s.wanted(ctx, req); wanted || err != nil {
			return reconcile.Result{}, err
		}
		if err := s.client.List(ctx, list, client.InNamespace(req.namespace), client.UnsafeDisableDeepCopy,
			client.MatchingFields{index.ByController(&corev1.Pod{}).Name: string(req.uid)}); err != nil {
			return reconcile.Result{}, err
		}
	}
	_, err := pods.InBatches(len(list.Items), parallel, func(i int) error {
		_, err := untrack(ctx, s.client, s.live, &list.Items[i])
		return err
	})
	return reconcile.Result{}, err
}

// wanted asks the API server about a job that the cache does not have: it may
// not have it yet.
func (s *strays) wanted(ctx context.Context, req stray) (bool, error) {
	job := &batchv1.Job{}
	err := s.client.Get(ctx, req.jobKey(), job)
	if apierrors.IsNotFound(err) || err == nil && job.UID != req.uid {
		err = s.live.Get(ctx, req.jobKey(), job)
	}
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("job %s: %w", req.jobKey(), err)
	}
	return req.wanted(job), nil
}
