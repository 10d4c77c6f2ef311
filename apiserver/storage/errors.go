package storage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"svc.dev/svc/apiserver/customlist"
	"svc.dev/svc/apiserver/patcherror"
)

// translatedErrors is a store that returns errors as API statuses, which tell
// the client whether its request, the size of the object or etcd is the cause.
// API statuses and storage errors of the store below stay as they are; other
// errors would become internal errors without a reason.
//
// Requests to etcd end shortly before the client's own request does, so that the
// client gets the reason: at the deadline of the request the server answers with
// a timeout without a reason or, if an answer has begun, closes the connection.
type translatedErrors struct{ storage.Interface }

// shorten returns a context whose deadline is shortly before that of ctx. Deadlines
// of contexts are by the machine's clock.
func shorten(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline.Add(-min(time.Until(deadline)/10, time.Second)))
}

// Create implements storage.Interface.
func (a translatedErrors) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	ctx, cancel := shorten(ctx)
	defer cancel()
	return translate(a.Interface.Create(ctx, key, obj, out, ttl))
}

// Get implements storage.Interface.
func (a translatedErrors) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	ctx, cancel := shorten(ctx)
	defer cancel()
	err := a.Interface.Get(ctx, key, opts, out)
	if storage.IsInvalidError(err) {
		return apierrors.NewBadRequest(err.Error()) // the resourceVersion is the only input
	}
	if err == nil {
		patcherror.Read(ctx, out)
	}
	return translate(err)
}

// Watch implements storage.Interface.
func (a translatedErrors) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	w, err := a.Interface.Watch(ctx, key, opts)
	if storage.IsInvalidError(err) {
		return nil, apierrors.NewBadRequest(err.Error()) // as in Get
	}
	return w, translate(err)
}

// GetList implements storage.Interface.
func (a translatedErrors) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	ctx, cancel := shorten(ctx)
	defer cancel()
	err := a.Interface.GetList(ctx, key, opts, list)
	if err == nil {
		customlist.Take(ctx, list)
	}
	return translate(err)
}

// GuaranteedUpdate implements storage.Interface. Applying a client's patch is
// part of it.
func (a translatedErrors) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	ctx, cancel := shorten(ctx)
	defer cancel()
	// The registry does the same for kinds, dry runs included. For custom resources
	// this is the only place but for dry runs (patcherror.DryRunFilter).
	explained := func(current runtime.Object, response storage.ResponseMeta) (runtime.Object, *uint64, error) {
		changed, ttl, err := update(current, response)
		if err != nil {
			return nil, nil, patcherror.Explain(ctx, err, current)
		}
		return changed, ttl, nil
	}
	return translate(a.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, explained, cached))
}

// Delete implements storage.Interface.
func (a translatedErrors) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	ctx, cancel := shorten(ctx)
	defer cancel()
	return translate(a.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts))
}

// translate returns the API status for an error of the store below.
func translate(err error) error {
	var stored *storage.StorageError
	var answered apierrors.APIStatus
	switch {
	case err == nil, errors.As(err, &stored), errors.As(err, &answered), storage.IsInvalidError(err):
		return err
	case errors.Is(err, storage.ErrResourceVersionSetOnCreate):
		return apierrors.NewBadRequest(err.Error())
	case tooLarge(err):
		return tooLargeError{apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the object is larger than etcd accepts: %v", err))}
	case errors.Is(err, errStopped):
		return apierrors.NewServiceUnavailable(err.Error())
	case unavailable(err):
		return apierrors.NewServiceUnavailable(fmt.Sprintf("etcd does not answer: %v", err))
	case errors.Is(err, context.DeadlineExceeded), code(err) == codes.DeadlineExceeded, errors.Is(err, rpctypes.ErrTimeout):
		return apierrors.NewTimeoutError(fmt.Sprintf("etcd did not answer in time: %v", err), 0)
	}
	return err
}

// tooLargeError is the status for a request that is too large for etcd. It is etcd's error,
// too, by whose code and text the library's handlers find that they can try again without
// managed fields (k8s.io/apiserver/pkg/endpoints/handlers, isTooLargeError).
type tooLargeError struct{ *apierrors.StatusError }

// Code returns the code of etcd's error.
func (tooLargeError) Code() codes.Code { return codes.InvalidArgument }

// Error implements error. Answers have the message of the status.
func (tooLargeError) Error() string { return "etcdserver: request is too large" }

// tooLarge reports whether etcd, or the client on the way to it, refused a
// request for its size.
func tooLarge(err error) bool {
	return errors.Is(err, rpctypes.ErrRequestTooLarge) ||
		code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max")
}

// unavailable reports whether etcd cannot be reached, ends, or has no leader.
func unavailable(err error) bool {
	return code(err) == codes.Unavailable && !errors.Is(err, rpctypes.ErrTimeout) || ending(err)
}

// ending reports whether a member of etcd ended before it had an answer. The handler of
// its port, which serves more than gRPC, then answers with nothing, in which gRPC finds no
// code.
func ending(err error) bool {
	return code(err) == codes.Unknown && strings.Contains(err.Error(), "unexpected HTTP status code received from server")
}

// code is the gRPC code of an error of etcd's client.
func code(err error) codes.Code {
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		return known.Code()
	}
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return codes.Unknown
}
