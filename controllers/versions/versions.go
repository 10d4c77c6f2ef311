// Package versions owns the access to kinds of which releases of Kubernetes serve different
// versions: a controller works with one Go type, whatever version the API server serves.
package versions

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"svc.dev/svc/apis/resource"
)

// object is a pointer to a kind's Go type.
type object[T any] interface {
	*T
	client.Object
}

// Version is a version of a kind with which a controller works as *T.
type Version[T any] struct {
	// Object is an empty object of the version.
	Object client.Object
	from   func(client.Object) *T
	to     func(*T) client.Object
}

// Of returns the version whose Go type is T itself.
func Of[T any, PT object[T]]() Version[T] {
	return Version[T]{
		Object: PT(new(T)),
		from:   func(obj client.Object) *T { return (*T)(obj.(PT)) },
		to:     func(t *T) client.Object { return PT(t) },
	}
}

// Alike returns a version whose Go type has the same fields as T.
func Alike[T, Other any, POther object[Other]]() Version[T] {
	return Version[T]{
		Object: POther(new(Other)),
		from: func(obj client.Object) *T {
			t := new(T)
			resource.CopyFields((*Other)(obj.(POther)), t)
			return t
		},
		to: func(t *T) client.Object {
			other := new(Other)
			resource.CopyFields(t, other)
			return POther(other)
		},
	}
}

// As returns an object of the version as *T. The two may share memory.
func (v Version[T]) As(obj client.Object) *T { return v.from(obj) }

// Made returns an object of the version with the fields of *T. The two may share memory.
func (v Version[T]) Made(t *T) client.Object { return v.to(t) }

// Served returns the first of the versions, of which the newest is the first, that is
// served. ok is false if none is.
func Served[T any](versions []Version[T], served func(client.Object) (bool, error)) (found Version[T], ok bool, err error) {
	for _, v := range versions {
		if ok, err := served(v.Object); ok || err != nil {
			return v, ok, err
		}
	}
	return found, false, nil
}

// Objects returns an empty object of each version.
func Objects[T any](versions []Version[T]) []client.Object {
	objects := make([]client.Object, len(versions))
	for i, v := range versions {
		objects[i] = v.Object
	}
	return objects
}

// Client reads and writes the objects of a version as *T.
type Client[T any] struct {
	Client  client.Client
	Version Version[T]
}

// Get returns an object.
func (c Client[T]) Get(ctx context.Context, key client.ObjectKey) (*T, error) {
	obj := c.Version.Object.DeepCopyObject().(client.Object)
	if err := c.Client.Get(ctx, key, obj); err != nil {
		return nil, err
	}
	return c.Version.from(obj), nil
}

// List returns all objects.
func (c Client[T]) List(ctx context.Context) ([]*T, error) {
	gvk, err := apiutil.GVKForObject(c.Version.Object, c.Client.Scheme())
	if err != nil {
		return nil, err
	}
	gvk.Kind += "List"
	made, err := c.Client.Scheme().New(gvk)
	if err != nil {
		return nil, err
	}
	list, ok := made.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("%s is not a list", gvk)
	}
	if err := c.Client.List(ctx, list); err != nil {
		return nil, err
	}
	var all []*T
	err = meta.EachListItem(list, func(item runtime.Object) error {
		all = append(all, c.Version.from(item.(client.Object)))
		return nil
	})
	return all, err
}

// UpdateStatus writes the status of an object, and updates the object with the response.
func (c Client[T]) UpdateStatus(ctx context.Context, t *T) error {
	obj := c.Version.to(t)
	if err := c.Client.Status().Update(ctx, obj); err != nil {
		return err
	}
	*t = *c.Version.from(obj)
	return nil
}
