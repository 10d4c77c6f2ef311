package job

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// untrack takes the finalizer from a pod, and tells whether it was this call
// that did: a pod may be known from a cache that is older than what another
// manager has done before this one.
func untrack(ctx context.Context, c client.Client, live client.Reader, pod *corev1.Pod) (mine bool, err error) {
	mine, err = tryUntrack(ctx, c, pod)
	if !apierrors.IsInvalid(err) {
		return mine, err
	}
	// The finalizers are not those that we know.
	fresh := &corev1.Pod{}
	if err := live.Get(ctx, client.ObjectKeyFromObject(pod), fresh); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if fresh.UID != pod.UID || !isTracked(fresh) {
		return false, nil
	}
	return tryUntrack(ctx, c, fresh)
}

// tryUntrack fails as invalid if the finalizers are not those of pod.
func tryUntrack(ctx context.Context, c client.Client, pod *corev1.Pod) (mine bool, err error) {
	at := slices.Index(pod.Finalizers, batchv1.JobTrackingFinalizer)
	if at < 0 {
		return false, nil
	}
	path := fmt.Sprintf("/metadata/finalizers/%d", at)
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": pod.UID},
		{"op": "test", "path": path, "value": batchv1.JobTrackingFinalizer},
		{"op": "remove", "path": path},
	})
	if err != nil {
		return false, err
	}
	target := &corev1.Pod{}
	target.Namespace, target.Name = pod.Namespace, pod.Name
	err = c.Patch(ctx, target, client.RawPatch(types.JSONPatchType, patch))
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("finalizer of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return true, nil
}
