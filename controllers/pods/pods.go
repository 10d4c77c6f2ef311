// Package pods has what the controllers of pods share: the creation and deletion of
// pods with their events, slow-start batches, and predicates on a pod's status.
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

// Burst is the maximum number of pods that one sync creates or deletes.
const Burst = 500

// FromTemplate returns the pod that the owner, which is of this kind, creates from a
// template. The API server generates its name from the owner's name.
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

// Control creates and deletes pods for their owners, and records events about it on
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

// Create creates a pod and updates it with the response. It records no event if the
// namespace is terminating; see NamespaceTerminates.
func (c Control) Create(ctx context.Context, owner client.Object, pod *corev1.Pod) error {
	if err := c.Client.Create(ctx, pod); err != nil {
		if !NamespaceTerminates(err) {
			c.Recorder.Eventf(owner, corev1.EventTypeWarning, createFailed, "Error creating: %v", err)
		}
		return err
	}
	c.Recorder.Eventf(owner, corev1.EventTypeNormal, created, "Created pod: %v", pod.Name)
	return nil
}

// NamespaceTerminates reports whether a creation failed because the namespace is
// terminating.
func NamespaceTerminates(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// Delete deletes the pod with this UID, not another one of the same name. It is no
// error if the pod was deleted already.
func (c Control) Delete(ctx context.Context, owner client.Object, pod *corev1.Pod) error {
	// The client may write the response into the object.
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

// InBatches calls fn with 0 to count-1 in slow-start batches: first the given number
// of concurrent calls, then twice as many after each batch without an error. It
// stops after a batch with an error, so that calls that cannot succeed, for example
// because of a quota, are not all tried. It returns the number of calls that
// succeeded, and the error with the lowest number.
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
