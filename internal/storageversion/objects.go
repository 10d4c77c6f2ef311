// Package storageversion owns the storing of existing objects in the form in which the API
// server would store them now: in the storage version, encrypted with its first provider.
package storageversion

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/metadata"
)

const (
	// chunk is how many objects are listed at a time.
	chunk = 500
	// writers is how many objects are written at a time.
	writers = 8
)

// Objects are the stored objects of a resource.
type Objects struct {
	Client   metadata.Interface
	Resource schema.GroupVersionResource
	// UpTo, unless empty, leaves out the objects with a later resource version: they have
	// been stored since then.
	UpTo string
	// Manager is the field manager of the writes. It gets no fields, as they change none.
	Manager string
	// FirstError ends the rewriting with the first error. By default the other objects
	// are rewritten.
	FirstError bool
}

// Result is what was done with the objects of a resource.
type Result struct {
	Resource schema.GroupResource
	// Objects is the number of objects, Rewritten of those that were stored in another
	// form. Left is the number of those that are still to be rewritten after an error.
	Objects, Rewritten, Left int
}

// Rewrite rewrites the objects that are stored in another form than the present one. An
// object that is deleted or stored by another client meanwhile needs no more. The error
// is the first one with FirstError, and otherwise joins those of all objects.
func (o Objects) Rewrite(ctx context.Context) (Result, error) {
	result := Result{Resource: o.Resource.GroupResource()}
	read, errs := 0, []error(nil)
	options := metav1.ListOptions{Limit: chunk}
	for {
		list, err := o.Client.Resource(o.Resource).List(ctx, options)
		if next := continuation(err); next != "" {
			// Objects that were created since the first list are stored in the present form.
			options.Continue = next
			continue
		}
		if err != nil {
			return result, errors.Join(append(errs, fmt.Errorf("list %s: %w", result.Resource, err))...)
		}
		read += len(list.Items)
		part, err := o.writeAll(ctx, o.wanted(list.Items))
		result.Objects = read
		if list.RemainingItemCount != nil {
			result.Objects += int(*list.RemainingItemCount)
		}
		result.Rewritten += part.rewritten
		result.Left += part.left
		if err != nil {
			if errs = append(errs, err); o.FirstError {
				result.Left += result.Objects - read
				return result, err
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return result, errors.Join(errs...)
		}
	}
}

// continuation returns where to continue a list whose next part is no longer available
// as it was at the beginning, or "".
func continuation(err error) string {
	var status apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) {
		return ""
	}
	return status.Status().Continue
}

// wanted returns the objects that are to be rewritten. One whose resource version cannot be
// compared is among them, and fails.
func (o Objects) wanted(objects []metav1.PartialObjectMetadata) []metav1.PartialObjectMetadata {
	if o.UpTo == "" {
		return objects
	}
	return slices.DeleteFunc(objects, func(object metav1.PartialObjectMetadata) bool {
		order, err := resourceversion.CompareResourceVersion(object.ResourceVersion, o.UpTo)
		return err == nil && order > 0
	})
}

// progress is what was done with some objects.
type progress struct{ rewritten, left int }

func (o Objects) writeAll(ctx context.Context, objects []metav1.PartialObjectMetadata) (progress, error) {
	var (
		mu   sync.Mutex
		done progress
		errs = make([]error, len(objects))
	)
	done.left = len(objects)
	group, writing := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range objects {
		group.Go(func() error {
			if writing.Err() != nil {
				return nil // another object has failed
			}
			// A write that has begun ends: only the caller cancels it.
			changed, err := o.write(ctx, &objects[i])
			if err != nil {
				if errs[i] = err; o.FirstError {
					return err
				}
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			done.left--
			if changed {
				done.rewritten++
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return done, err
	}
	return done, errors.Join(errs...)
}

// write makes the server read and store an object by a patch without changes. It reports
// whether the object was stored in another form: otherwise the server writes nothing.
func (o Objects) write(ctx context.Context, object *metav1.PartialObjectMetadata) (rewritten bool, err error) {
	failed := func(err error) error {
		return fmt.Errorf("%s %s: %w", o.Resource.GroupResource(), types.NamespacedName{Namespace: object.Namespace, Name: object.Name}, err)
	}
	if o.UpTo != "" {
		if _, err := resourceversion.CompareResourceVersion(object.ResourceVersion, o.UpTo); err != nil {
			return false, failed(err)
		}
	}
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"resourceVersion":%q}}`, object.UID, object.ResourceVersion)
	after, err := o.Client.Resource(o.Resource).Namespace(object.Namespace).Patch(ctx, object.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: o.Manager})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil // it was deleted
	case apierrors.IsConflict(err):
		return false, nil // it was stored since it was listed
	case err != nil:
		return false, failed(err)
	}
	return after.ResourceVersion != object.ResourceVersion, nil
}
