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

	"svc.dev/svc/controllers/pods"
)

// untracked is what came of an attempt to take the finalizer from a pod.
type untracked int

const (
	// taken by this call.
	taken untracked = iota
	// absent says that somebody else has taken it: the pod may be known from a
	// cache that is older than what another manager has done.
	absent
	// ended says that the pod was to lose it while it runs, but has ended, and
	// keeps it to be counted.
	ended
)

// untrack takes the finalizer from a pod, whatever the pod does now.
func untrack(ctx context.Context, c client.Client, live client.Reader, pod *corev1.Pod) (untracked, error) {
	return untrackIf(ctx, c, live, pod, false)
}

// drop takes the finalizer from a pod that runs.
func drop(ctx context.Context, c client.Client, live client.Reader, pod *corev1.Pod) (untracked, error) {
	return untrackIf(ctx, c, live, pod, true)
}

func untrackIf(ctx context.Context, c client.Client, live client.Reader, pod *corev1.Pod, runs bool) (untracked, error) {
	result, err := tryUntrack(ctx, c, pod, runs)
	if !apierrors.IsInvalid(err) {
		return result, err
	}
	// The pod is not as we know it.
	fresh := &corev1.Pod{}
	if err := live.Get(ctx, client.ObjectKeyFromObject(pod), fresh); err != nil {
		return absent, client.IgnoreNotFound(err)
	}
	switch {
	case fresh.UID != pod.UID || !isTracked(fresh):
		return absent, nil
	case runs && pods.IsTerminal(fresh):
		return ended, nil
	}
	return tryUntrack(ctx, c, fresh, runs)
}

// tryUntrack fails as invalid if the finalizers are not those of pod, or if its
// phase is not, which matters if it is to run.
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
	return taken, nil
}
