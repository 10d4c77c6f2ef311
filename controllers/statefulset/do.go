package statefulset

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/controllers/pods"
	"svc.dev/svc/controllers/statefulset/decide"
)

// do executes actions: those with the same verb that follow each other in slow-start
// batches.
func (r *reconciler) do(ctx context.Context, set *appsv1.StatefulSet, actions []decide.Action) error {
	for len(actions) > 0 {
		n := 1
		for n < len(actions) && actions[n].Verb == actions[0].Verb {
			n++
		}
		if _, err := pods.InBatches(n, 1, func(i int) error { return r.act(ctx, set, actions[i]) }); err != nil {
			return err
		}
		actions = actions[n:]
	}
	return nil
}

func (r *reconciler) act(ctx context.Context, set *appsv1.StatefulSet, action decide.Action) error {
	if action.Event.Reason != "" {
		r.recorder.Event(set, action.Event.Type, action.Event.Reason, action.Event.Message)
	}
	for _, claim := range action.Claims {
		if err := r.createClaim(ctx, set, action.Pod, claim); err != nil {
			if action.Verb == decide.Create {
				r.record(set, action.Verb, action.Pod.Name, err)
			}
			return err
		}
	}
	for _, owners := range action.Owners {
		if err := r.changeOwners(ctx, owners); err != nil {
			return err
		}
	}
	switch action.Verb {
	case decide.Create:
		pod := action.Pod.DeepCopy()
		err := r.pods.Wrote(set, pod, r.client.Create(ctx, pod))
		if !apierrors.IsAlreadyExists(err) && !pods.NamespaceTerminates(err) {
			r.record(set, action.Verb, pod.Name, err)
		}
		return err
	case decide.Delete:
		return r.delete(ctx, set, action.Pod)
	case decide.Report:
		return nil
	}
	if len(action.Labels) == 0 {
		return nil
	}
	err := r.patch(ctx, &corev1.Pod{}, action.Pod, map[string]any{"uid": action.Pod.UID, "labels": action.Labels})
	err = r.pods.Wrote(set, action.Pod, err)
	r.record(set, "update", action.Pod.Name, err)
	return err
}

// delete deletes the pod with this UID, not another one of the same name.
func (r *reconciler) delete(ctx context.Context, set *appsv1.StatefulSet, pod *corev1.Pod) error {
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err := r.client.Delete(ctx, target, client.Preconditions{UID: ptr.To(pod.UID)})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return r.pods.Wrote(set, pod, nil) // it has gone
	}
	if err == nil {
		r.backoff.deleted(set, pod)
	}
	r.record(set, decide.Delete, pod.Name, err)
	return r.pods.Wrote(set, pod, err)
}

// createClaim creates a claim. It is no error if another client has created it.
func (r *reconciler) createClaim(ctx context.Context, set *appsv1.StatefulSet, pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) error {
	err := r.client.Create(ctx, claim.DeepCopy())
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case pods.NamespaceTerminates(err):
		return err
	case err != nil:
		r.recorder.Eventf(set, corev1.EventTypeWarning, "FailedCreate", "create Claim %s for Pod %s in StatefulSet %s failed error: %s", claim.Name, pod.Name, set.Name, err)
		return fmt.Errorf("failed to create PVC %s: %w", claim.Name, err)
	}
	r.recorder.Eventf(set, corev1.EventTypeNormal, "SuccessfulCreate", "create Claim %s Pod %s in StatefulSet %s success", claim.Name, pod.Name, set.Name)
	return nil
}

// changeOwners writes the owner references of a claim, unless another client has
// written it since it was read.
func (r *reconciler) changeOwners(ctx context.Context, o decide.Owners) error {
	return r.patch(ctx, &corev1.PersistentVolumeClaim{}, o.Claim, map[string]any{
		"uid": o.Claim.UID, "resourceVersion": o.Claim.ResourceVersion, "ownerReferences": o.References,
	})
}

// patch changes the metadata of obj, of which target is the kind. The lists in
// the patch replace those of the object.
func (r *reconciler) patch(ctx context.Context, target, obj client.Object, meta map[string]any) error {
	data, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return err
	}
	target.SetNamespace(obj.GetNamespace())
	target.SetName(obj.GetName())
	return r.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, data))
}

// record records the outcome of a write of a pod as an event of the set.
func (r *reconciler) record(set *appsv1.StatefulSet, verb decide.Verb, pod string, err error) {
	reason := strings.ToUpper(string(verb[:1])) + string(verb[1:])
	if err == nil {
		r.recorder.Eventf(set, corev1.EventTypeNormal, "Successful"+reason, "%s Pod %s in StatefulSet %s successful", verb, pod, set.Name)
		return
	}
	r.recorder.Eventf(set, corev1.EventTypeWarning, "Failed"+reason, "%s Pod %s in StatefulSet %s failed error: %s", verb, pod, set.Name, err)
}
