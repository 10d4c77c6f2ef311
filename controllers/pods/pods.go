// Package pods is what the controllers that own pods have in common: a pod from
// a template, the creation and deletion of pods with their events, calls in
// batches that start slowly, and what a pod's status means to its owner.
package pods

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Burst is how many pods one reconciliation creates or deletes at most.
const Burst = 500

// FromTemplate is the pod that owner, of a kind, makes from a template. Its name
// begins with the owner's; the API server chooses the end.
func FromTemplate(owner metav1.Object, kind schema.GroupVersionKind, template *corev1.PodTemplateSpec) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       owner.GetNamespace(),
			GenerateName:    owner.GetName() + "-",
			Labels:          maps.Clone(template.Labels),
			Annotations:     maps.Clone(template.Annotations),
			Finalizers:      slices.Clone(template.Finalizers),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)},
		},
		Spec: *template.Spec.DeepCopy(),
	}
}

// Control creates and deletes pods for their owners, and tells so in events of
// the owners.
type Control struct {
	Client   client.Client
	Recorder record.EventRecorder
}

// The reasons of the events.
const (
	createFailed  = "FailedCreate"
	created       = "SuccessfulCreate"
	deletionError = "FailedDelete"
	deleted       = "SuccessfulDelete"
)

// Create creates a pod and fills it with what the API server has made of it.
// There is no event when the namespace goes, as nothing can be created in it;
// see NamespaceGoes.
func (c Control) Create(ctx context.Context, owner client.Object, pod *corev1.Pod) error {
	if err := c.Client.Create(ctx, pod); err != nil {
		if !NamespaceGoes(err) {
			c.Recorder.Eventf(owner, corev1.EventTypeWarning, createFailed, "Error creating: %v", err)
		}
		return err
	}
	c.Recorder.Eventf(owner, corev1.EventTypeNormal, created, "Created pod: %v", pod.Name)
	return nil
}

// NamespaceGoes tells whether a creation failed since the namespace is being
// deleted.
func NamespaceGoes(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// Delete deletes exactly this pod, not another one of its name. A pod that has
// gone already is no error.
func (c Control) Delete(ctx context.Context, owner client.Object, pod *corev1.Pod) error {
	// A fresh object, as the client may write the answer into it.
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err := c.Client.Delete(ctx, target, client.Preconditions{UID: ptr.To(pod.UID)})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		c.Recorder.Eventf(owner, corev1.EventTypeWarning, deletionError, "Error deleting: %v", err)
		return fmt.Errorf("unable to delete pods: %w", err)
	}
	c.Recorder.Eventf(owner, corev1.EventTypeNormal, deleted, "Deleted pod: %v", pod.Name)
	return nil
}

// InBatches calls fn with 0 to count-1: as many calls at the same time as first
// says, then, as long as none fails, twice as many, and so on. After a batch
// with a failure there is no further one, so that what cannot succeed, for a
// quota, say, is not tried count times. It returns how many calls succeeded
// and the error of the first call, in the order of numbers, that did not.
func InBatches(count, first int, fn func(i int) error) (succeeded int, err error) {
	errs := make([]error, count)
	for begin, size := 0, first; begin < count; size *= 2 {
		end := min(begin+size, count)
		var batch sync.WaitGroup
		for i := begin; i < end; i++ {
			batch.Go(func() { errs[i] = fn(i) })
		}
		batch.Wait()
		for _, e := range errs[begin:end] {
			if e == nil {
				succeeded++
			} else if err == nil {
				err = e
			}
		}
		if err != nil {
			return succeeded, err
		}
		begin = end
	}
	return succeeded, nil
}
