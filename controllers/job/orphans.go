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
	"svc.dev/svc/controllers/job/decide"
	"svc.dev/svc/controllers/pods"
)

// orphan names pods that no job will count: those of a job that was deleted or
// has finished, or one pod without a controller.
type orphan struct {
	namespace string
	job       string
	uid       types.UID
	pod       string
}

func (o orphan) jobKey() types.NamespacedName {
	return types.NamespacedName{Namespace: o.namespace, Name: o.job}
}

// countedBy reports whether the job of the orphan's name counts its pods.
func (o orphan) countedBy(job *batchv1.Job) bool {
	return job.UID == o.uid && (!decide.IsFinished(job) || isManagedElsewhere(job))
}

// orphans reads jobs and pods; it alone removes the finalizer
// batch.kubernetes.io/job-tracking from pods that no job will count.
type orphans struct {
	client client.Client
	live   client.Reader
}

// Reconcile removes the finalizers of orphan pods.
func (s *orphans) Reconcile(ctx context.Context, req orphan) (reconcile.Result, error) {
	list := &corev1.PodList{}
	if req.pod != "" {
		// The cache may not have its adoption by a job yet.
		pod := corev1.Pod{}
		if err := s.live.Get(ctx, types.NamespacedName{Namespace: req.namespace, Name: req.pod}, &pod); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		if metav1.GetControllerOfNoCopy(&pod) != nil {
			return reconcile.Result{}, nil
		}
		list.Items = append(list.Items, pod)
	} else {
		if counted, err := s.counted(ctx, req); counted || err != nil {
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

// counted reports whether the job still counts its pods. It reads a job that is
// missing in the cache from the API server, as the cache may lag behind.
func (s *orphans) counted(ctx context.Context, req orphan) (bool, error) {
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
	return req.countedBy(job), nil
}
