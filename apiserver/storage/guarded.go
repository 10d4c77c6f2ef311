package storage

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// guardedWrites is a store that creates and updates only while writable returns no error,
// and deletes only while deletable returns none.
type guardedWrites struct {
	storage.Interface
	writable, deletable func() error
}

// RefusedError is the error of a write that was not sent to etcd.
type RefusedError struct{ Reason error }

// Error implements error.
func (e RefusedError) Error() string { return e.Reason.Error() }

// Unwrap returns the reason.
func (e RefusedError) Unwrap() error { return e.Reason }

// Status implements apierrors.APIStatus, with the status of the reason.
func (e RefusedError) Status() metav1.Status {
	var status apierrors.APIStatus = apierrors.NewInternalError(e.Reason)
	errors.As(e.Reason, &status)
	return status.Status()
}

// Create implements storage.Interface.
func (g guardedWrites) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if err := g.writable(); err != nil {
		return RefusedError{err}
	}
	return g.Interface.Create(ctx, key, obj, out, ttl)
}

// GuaranteedUpdate implements storage.Interface.
func (g guardedWrites) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	if err := g.writable(); err != nil {
		return RefusedError{err}
	}
	return g.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, cached)
}

// Delete implements storage.Interface.
func (g guardedWrites) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	if err := g.deletable(); err != nil {
		return err
	}
	return g.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts)
}
