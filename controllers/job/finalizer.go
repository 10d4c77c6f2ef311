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

	"svc.dev/svc/controllers/job/decide"
	"svc.dev/svc/controllers/pods"
)

// untracked is the result of an attempt to remove the finalizer of a pod.
type untracked int

const (
	// removed by this call.
	removed untracked = iota
	// absent: the pod had no finalizer. The cache may be older than the removal by
	// another process.
	absent
	// kept: the finalizer was to be removed from a running pod, but the pod has
	// terminated, and is to be counted.
	kept
)

// untrack removes the finalizer of a pod.
func untrack(ctx context.Context, c client.Client, live client.Reader, pod *corev1.Pod) (untracked, error) {
	return untrackIf(ctx, c, live, pod, false)
}

// untrackRunning removes the finalizer of a pod unless the pod has terminated.
func untrackRunning(ctx context.Context, c client.Client, live client.Reader, pod *corev1.Pod) (untracked, error) {
	return untrackIf(ctx, c, live, pod, true)
}

func untrackIf(ctx context.Context, c client.Client, live client.Reader, pod *corev1.Pod, runs bool) (untracked, error) {
	result, err := tryUntrack(ctx, c, pod, runs)
	if !apierrors.IsInvalid(err) {
		return result, err
	}
	// The pod has changed since it was read.
	fresh := &corev1.Pod{}
	if err := live.Get(ctx, client.ObjectKeyFromObject(pod), fresh); err != nil {
		return absent, client.IgnoreNotFound(err)
	}
	switch {
	case fresh.UID != pod.UID || !decide.IsTracked(fresh):
		return absent, nil
	case runs && pods.IsTerminal(fresh):
		return kept, nil
	}
	return tryUntrack(ctx, c, fresh, runs)
}

// tryUntrack fails as invalid if the finalizers have changed, or the phase of a
// pod that must be running.
func tryUntrack(ctx context.Context, c client.Client, pod *corev1.Pod, runs bool) (untracked, error) {
	at := slices.Index(pod.Finalizers, batchv1.JobTrackingFinalizer)
	if at < 0 {
		return absent, nil
	}
	path := fmt.Sprintf("/metadata/finalizers/%d", at)
	operations := []map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": pod.UID},
		{"op": "test", "path": path, "value": batchv1.JobTrackingFinalizer},
		{"op": "remove", "path": path},
	}
	if runs {
		operations = append(operations, map[string]any{"op": "test", "path": "/status/phase", "value": pod.Status.Phase})
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return absent, err
	}
	target := &corev1.Pod{}
	target.Namespace, target.Name = pod.Namespace, pod.Name
	err = c.Patch(ctx, target, client.RawPatch(types.JSONPatchType, patch))
	switch {
	case apierrors.IsNotFound(err):
		return absent, nil
	case err != nil:
		return absent, fmt.Errorf("finalizer of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return removed, nil
}
