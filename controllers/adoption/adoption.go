// Package adoption settles which objects an owner controls by its selector: it
// adopts orphans that match, and releases objects that no longer match.
package adoption

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

// Adopter is an owner that adopts and releases objects.
type Adopter struct {
	Client client.Client
	// Live reads from the API server. It is asked before an adoption whether the
	// owner is being deleted: the garbage collector would delete an object that
	// such an owner adopts.
	Live     client.Reader
	Owner    client.Object
	Selector labels.Selector
	// Finalizer, if not empty, is added to adopted objects and removed from
	// released ones.
	Finalizer string
}

// Sync adopts and releases objs as Decide says, and returns those that the owner
// controls afterwards. If some could not be adopted or released, it returns an
// error besides.
func Sync[T client.Object](ctx context.Context, a Adopter, objs []T) ([]T, error) {
	var controlled []T
	var errs []error
	var mayAdopt *error // the result of mayAdopt, which is called once at most
	for _, obj := range objs {
		var err error
		switch Decide(a.Owner, a.Selector, obj) {
		case Owned:
			controlled = append(controlled, obj)
		case Release:
			err = a.release(ctx, obj)
		case Adopt:
			if mayAdopt == nil {
				check := a.mayAdopt(ctx)
				mayAdopt = &check
			}
			if err = *mayAdopt; err == nil {
				err = a.adopt(ctx, obj)
			}
			switch {
			case err == nil:
				controlled = append(controlled, obj)
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
	return controlled, errors.Join(errs...)
}

// Decision is what an owner does with an object.
type Decision int

const (
	// Ignore leaves the object as it is.
	Ignore Decision = iota
	// Owned is for an object that the owner controls and keeps.
	Owned
	// Adopt makes the owner the object's controller.
	Adopt
	// Release removes the owner from the object's owners.
	Release
)

// Decide returns what the owner does with an object of its namespace. An owner
// that is being deleted adopts and releases nothing.
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

// mayAdopt returns an error unless the API server has the owner and it is not
// being deleted.
func (a Adopter) mayAdopt(ctx context.Context) error {
	fresh, err := a.empty(a.Owner)
	if err != nil {
		return err
	}
	err = a.Live.Get(ctx, client.ObjectKeyFromObject(a.Owner), fresh)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s is gone", klog.KObj(a.Owner))
	case err != nil:
		return fmt.Errorf("can't recheck DeletionTimestamp: %w", err)
	case fresh.GetUID() != a.Owner.GetUID():
		return fmt.Errorf("original %s is gone: got uid %s, wanted %s", klog.KObj(a.Owner), fresh.GetUID(), a.Owner.GetUID())
	case fresh.GetDeletionTimestamp() != nil:
		return fmt.Errorf("%s has just been deleted at %s", klog.KObj(a.Owner), fresh.GetDeletionTimestamp())
	}
	return nil
}

// adopt makes the owner the controller of obj. The API server rejects a second
// controller.
func (a Adopter) adopt(ctx context.Context, obj client.Object) error {
	kind, err := a.Client.GroupVersionKindFor(a.Owner)
	if err != nil {
		return err
	}
	meta := map[string]any{"ownerReferences": []any{metav1.NewControllerRef(a.Owner, kind)}}
	if a.Finalizer != "" {
		meta["finalizers"] = []string{a.Finalizer}
	}
	return a.patch(ctx, obj, meta)
}

// release removes the owner from the owners of obj.
func (a Adopter) release(ctx context.Context, obj client.Object) error {
	klog.FromContext(ctx).V(2).Info("Releasing object that no longer matches the selector", "object", klog.KObj(obj), "owner", klog.KObj(a.Owner))
	meta := map[string]any{"ownerReferences": []any{map[string]any{"$patch": "delete", "uid": a.Owner.GetUID()}}}
	if a.Finalizer != "" {
		meta["$deleteFromPrimitiveList/finalizers"] = []string{a.Finalizer}
	}
	return client.IgnoreNotFound(a.patch(ctx, obj, meta))
}

// patch changes the metadata of obj if its UID has not changed, so that another
// object of the same name stays as it is.
func (a Adopter) patch(ctx context.Context, obj client.Object, meta map[string]any) error {
	meta["uid"] = obj.GetUID()
	data, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return err
	}
	target, err := a.empty(obj) // the client writes the response into it
	if err != nil {
		return err
	}
	target.SetNamespace(obj.GetNamespace())
	target.SetName(obj.GetName())
	return a.Client.Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, data))
}

// empty returns a new object of the kind of obj.
func (a Adopter) empty(obj client.Object) (client.Object, error) {
	kind, err := a.Client.GroupVersionKindFor(obj)
	if err != nil {
		return nil, err
	}
	fresh, err := a.Client.Scheme().New(kind)
	if err != nil {
		return nil, err
	}
	return fresh.(client.Object), nil
}
