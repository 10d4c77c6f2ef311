package attachdetach

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/controllers/expectations"
)

// exclusives serializes the creations of attachments of exclusive volumes. Plans are made
// for nodes, by several workers at once, and so two of them may find that a volume is not
// attached to any node.
type exclusives struct {
	// mu is held from the list that shows that no other node has a volume until the
	// creation of its attachment has returned. As the controller's client waits in each
	// list until the cache has its own writes, the next list shows the attachment.
	mu sync.Mutex
	// hidden are, by the unique names of their volumes, the attachments that may exist though
	// the cache does not have them: the response to their creation was lost, or was that they
	// exist already. The values are of the type *storagev1.VolumeAttachment.
	hidden sync.Map
}

// shown forgets the attachments that the cache has.
func (e *exclusives) shown(attachments []*storagev1.VolumeAttachment) {
	e.hidden.Range(func(volume, a any) bool {
		if slices.ContainsFunc(attachments, func(shown *storagev1.VolumeAttachment) bool {
			return shown.Name == a.(*storagev1.VolumeAttachment).Name
		}) {
			e.hidden.CompareAndDelete(volume, a)
		}
		return true
	})
}

// get returns the hidden attachment of a volume, nil if there is none.
func (e *exclusives) get(volume corev1.UniqueVolumeName) *storagev1.VolumeAttachment {
	a, _ := e.hidden.Load(volume)
	hidden, _ := a.(*storagev1.VolumeAttachment)
	return hidden
}

// create creates an attachment. That of an exclusive volume is not created, but the pods
// get an event, if the volume has an attachment to another node by now.
func (r *reconciler) create(ctx context.Context, c creation) error {
	if !exclusive(c.volume) {
		return client.IgnoreAlreadyExists(r.client.Create(ctx, c.attachment))
	}
	r.exclusives.mu.Lock()
	defer r.exclusives.mu.Unlock()
	other, err := r.hidden(ctx, c)
	if err != nil {
		return err
	}
	if other == "" {
		if other, err = r.elsewhere(ctx, c.volume, c.attachment.Spec.NodeName); err != nil {
			return err
		}
	}
	if other != "" {
		for _, pod := range c.pods {
			r.recorder.Event(pod, corev1.EventTypeWarning, "FailedAttachVolume", multiAttach(c.volume.Name, other))
		}
		return nil
	}
	return client.IgnoreAlreadyExists(r.createExclusive(ctx, uniqueName(c.volume), c.attachment))
}

// hidden returns the other node to which the volume has an attachment that the cache does
// not have, empty if there is none. It repeats a creation whose response was lost: a read
// does not show an attachment that the API server is about to create. The caller holds
// r.exclusives.mu.
func (r *reconciler) hidden(ctx context.Context, c creation) (string, error) {
	volume := uniqueName(c.volume)
	a := r.exclusives.get(volume)
	if a == nil || a.Name == c.attachment.Name {
		return "", nil
	}
	err := r.createExclusive(ctx, volume, a.DeepCopy())
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		return a.Spec.NodeName, nil
	case refused(err):
		return "", nil
	}
	return "", fmt.Errorf("the volume may be attached to node %s: %w", a.Spec.NodeName, err)
}

// createExclusive creates an attachment of a volume and records whether the cache may lack it. The
// caller holds r.exclusives.mu.
func (r *reconciler) createExclusive(ctx context.Context, volume corev1.UniqueVolumeName, a *storagev1.VolumeAttachment) error {
	asked := a.DeepCopy()
	err := r.client.Create(ctx, a)
	switch {
	case err == nil, refused(err):
		r.exclusives.hidden.Delete(volume)
	case apierrors.IsAlreadyExists(err), expectations.OutcomeUnknown(err):
		r.exclusives.hidden.Store(volume, asked)
	}
	return err
}

// refused reports whether the API server does not create an object, now or when it is
// asked again.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}
