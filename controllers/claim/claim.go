// Package claim settles which objects a controlling object owns: those that its
// selector matches. It adopts what matches and has no controller, and releases
// what it controls and does not match any more.
package claim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Claimant is who claims objects.
type Claimant struct {
	Client client.Client
	// Live reads from the API server: before an adoption, that the owner is not
	// being deleted. Else the adopted object would be collected with it.
	Live     client.Reader
	Owner    client.Object
	Selector labels.Selector
	// Finalizer, if not empty, is added to what is adopted and removed from what
	// is released.
	Finalizer string
}

// Claim returns those of objs that the owner controls now. When some could not
// be adopted or released, it returns an error, too.
func Claim[T client.Object](ctx context.Context, c Claimant, objs []T) ([]T, error) {
	var claimed []T
	var errs []error
	var adoptable *error // of the check whether the owner may adopt, once there was one
	for _, obj := range objs {
		var err error
		switch Decide(c.Owner, c.Selector, obj) {
		case Owned:
			claimed = append(claimed, obj)
		case Release:
			err = c.release(ctx, obj)
		case Adopt:
			if adoptable == nil {
				check := c.mayAdopt(ctx)
				adoptable = &check
			}
			if err = *adoptable; err == nil {
				err = c.adopt(ctx, obj)
			}
			switch {
			case err == nil:
				claimed = append(claimed, obj)
			case apierrors.IsNotFound(err):
				err = nil
			default:
				err = fmt.Errorf("can't adopt %T %s (%s): %w", obj, klog.KObj(obj), obj.GetUID(), err)
			}
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return claimed, errors.Join(errs...)
}

// Decision is what is to be done with an object.
type Decision int

// The decisions.
const (
	Ignore Decision = iota
	Owned
	Adopt
	Release
)

// Decide tells what owner is to do with an object of its own namespace. An owner
// that is being deleted takes and gives nothing.
func Decide(owner metav1.Object, selector labels.Selector, obj metav1.Object) Decision {
	matches := selector.Matches(labels.Set(obj.GetLabels()))
	controller := metav1.GetControllerOfNoCopy(obj)
	switch {
	case controller != nil && controller.UID != owner.GetUID():
		return Ignore
	case controller != nil && matches:
		return Owned
	case owner.GetDeletionTimestamp() != nil:
		return Ignore
	case controller != nil:
		return Release
	case matches && obj.GetDeletionTimestamp() == nil:
		return Adopt
	}
	return Ignore
}

// mayAdopt asks the API server whether the owner lives.
func (c Claimant) mayAdopt(ctx context.Context) error {
	fresh, err := c.empty(c.Owner)
	if err != nil {
		return err
	}
	err = c.Live.Get(ctx, client.ObjectKeyFromObject(c.Owner), fresh)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s is gone", klog.KObj(c.Owner))
	case err != nil:
		return fmt.Errorf("can't recheck DeletionTimestamp: %w", err)
	case fresh.GetUID() != c.Owner.GetUID():
		return fmt.Errorf("original %s is gone: got uid %s, wanted %s", klog.KObj(c.Owner), fresh.GetUID(), c.Owner.GetUID())
	case fresh.GetDeletionTimestamp() != nil:
		return fmt.Errorf("%s has just been deleted at %s", klog.KObj(c.Owner), fresh.GetDeletionTimestamp())
	}
	return nil
}

// adopt makes the owner the controller. The API server refuses a second one.
func (c Claimant) adopt(ctx context.Context, obj client.Object) error {
	kind, err := c.Client.GroupVersionKindFor(c.Owner)
	if err != nil {
		return err
	}
	meta := map[string]any{"ownerReferences": []any{metav1.NewControllerRef(c.Owner, kind)}}
	if c.Finalizer != "" {
		meta["finalizers"] = []string{c.Finalizer}
	}
	return c.patch(ctx, obj, meta)
}

// release takes the owner from the object's owners.
func (c Claimant) release(ctx context.Context, obj client.Object) error {
	klog.FromContext(ctx).V(2).Info("Releasing an object that the selector does not match any more", "object", klog.KObj(obj), "owner", klog.KObj(c.Owner))
	meta := map[string]any{"ownerReferences": []any{map[string]any{"$patch": "delete", "uid": c.Owner.GetUID()}}}
	if c.Finalizer != "" {
		meta["$deleteFromPrimitiveList/finalizers"] = []string{c.Finalizer}
	}
	return client.IgnoreNotFound(c.patch(ctx, obj, meta))
}

// patch changes the metadata of exactly this object, not of another one of its
// name.
func (c Claimant) patch(ctx context.Context, obj client.Object, meta map[string]any) error {
	meta["uid"] = obj.GetUID()
	data, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return err
	}
	target, err := c.empty(obj) // the client writes the answer into it
	if err != nil {
		return err
	}
	target.SetNamespace(obj.GetNamespace())
	target.SetName(obj.GetName())
	return c.Client.Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, data))
}

// empty is a new object of obj's kind.
func (c Claimant) empty(obj client.Object) (client.Object, error) {
	kind, err := c.Client.GroupVersionKindFor(obj)
	if err != nil {
		return nil, err
	}
	fresh, err := c.Client.Scheme().New(kind)
	if err != nil {
		return nil, err
	}
	return fresh.(client.Object), nil
}
