package registry

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource"
)

// terminate is Delete for a kind with Terminate. The first request sets the
// deletion timestamp (document 1, section 3); the object is deleted by the
// update or delete that finds it no longer held.
func (m *mainREST) terminate(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	if options == nil {
		options = metav1.NewDeleteOptions(0)
	}
	found, err := m.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, false, err
	}
	if err := m.checkPreconditions(found, options.Preconditions); err != nil {
		return nil, false, err
	}
	options = options.DeepCopy()
	resource.Fill(&options.Preconditions, metav1.Preconditions{})
	// Between here and the writes the object may be replaced by another of its name.
	resource.Fill(&options.Preconditions.UID, metaOf(found).GetUID())
	if metaOf(found).GetDeletionTimestamp() == nil {
		if found, err = m.markTerminating(ctx, name, validate, options); err != nil {
			return nil, false, err
		}
		// The precondition held, and marking the object made a new version.
		options.Preconditions.ResourceVersion = nil
	}
	if m.kind.Held(found) || len(metaOf(found).GetFinalizers()) > 0 {
		return found, false, nil
	}
	return m.Store.Delete(ctx, name, validate, options)
}

// checkPreconditions returns a conflict if the object does not meet the
// preconditions. Its message is that of kube-apiserver's deletion of a namespace and
// update of a scale: the storage error's own, without the key.
func (m *mainREST) checkPreconditions(obj runtime.Object, p *metav1.Preconditions) error {
	err := storagePreconditions(p).Check("", obj)
	if err == nil {
		return nil
	}
	return apierrors.NewConflict(m.DefaultQualifiedResource, metaOf(obj).GetName(), errors.Unwrap(err))
}

func storagePreconditions(p *metav1.Preconditions) *storage.Preconditions {
	if p == nil {
		return &storage.Preconditions{}
	}
	return &storage.Preconditions{UID: p.UID, ResourceVersion: p.ResourceVersion}
}

// markTerminating sets the deletion timestamp and what Terminate changes, and
// the finalizer that the propagation policy, or orphanDependents, asks for.
func (m *mainREST) markTerminating(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, error) {
	key, err := m.KeyFunc(ctx, name)
	if err != nil {
		return nil, err
	}
	out := m.New()
	err = m.Storage.GuaranteedUpdate(ctx, key, out, false, storagePreconditions(options.Preconditions),
		storage.SimpleUpdate(func(existing runtime.Object) (runtime.Object, error) {
			if validate != nil {
				if err := validate(ctx, existing); err != nil {
					return nil, err
				}
			}
			at := metaOf(existing)
			if at.GetDeletionTimestamp() == nil {
				now := metav1.NewTime(m.strategy.env.Clock.Now())
				at.SetDeletionTimestamp(&now)
				m.kind.Terminate(existing)
			}
			setPropagation(at, options)
			return existing, nil
		}), isDryRun(options.DryRun), nil)
	if err != nil {
		return nil, storeerr.InterpretUpdateError(err, m.DefaultQualifiedResource, name)
	}
	return out, nil
}

// setPropagation adds or removes the garbage collector's finalizers.
func setPropagation(obj metav1.Object, options *metav1.DeleteOptions) {
	policy := options.PropagationPolicy
	//nolint:staticcheck // it is deprecated, and clients may still set it
	if orphan := options.OrphanDependents; orphan != nil {
		policy = ptr.To(metav1.DeletePropagationForeground)
		if *orphan {
			policy = ptr.To(metav1.DeletePropagationOrphan)
		}
	}
	if policy == nil {
		return
	}
	wanted := ""
	switch *policy {
	case metav1.DeletePropagationForeground:
		wanted = metav1.FinalizerDeleteDependents
	case metav1.DeletePropagationOrphan:
		wanted = metav1.FinalizerOrphanDependents
	}
	var finalizers []string
	for _, f := range obj.GetFinalizers() {
		if f != metav1.FinalizerDeleteDependents && f != metav1.FinalizerOrphanDependents {
			finalizers = append(finalizers, f)
		}
	}
	if wanted != "" {
		finalizers = append(finalizers, wanted)
	}
	obj.SetFinalizers(finalizers)
}
