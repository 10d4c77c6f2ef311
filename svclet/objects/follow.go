package objects

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// follower lists and watches the selected objects. It needs much less memory than
// client-go's reflector: it has no store and keeps nothing between events.
type follower struct {
	client client.WithWatch
	// list makes an empty list of the kind, and older those of its older versions, newest
	// first, for API servers that do not serve the newer ones.
	list   func() client.ObjectList
	older  []func() client.ObjectList
	of     client.ListOptions
	clock  clock.Clock
	random func() float64
}

func (s *Store) follower(list func() client.ObjectList, of client.ListOptions) follower {
	return follower{client: s.Client, list: list, of: of, clock: s.Clock, random: s.Random}
}

// target receives the objects.
type target interface {
	// replace receives all objects. Like set, it reports whether the watch can end.
	replace([]client.Object) (enough bool)
	set(client.Object) (enough bool)
	remove(client.Object)
	// failed receives the error while the list or watch fails.
	failed(error)
}

// The back-off doubles from minDelay to maxDelay, with a jitter of up to 100 %. A
// watch that has lasted for longWatch resets it.
const (
	minDelay  = 100 * time.Millisecond
	maxDelay  = 30 * time.Second
	longWatch = 10 * time.Second
)

// run lists and watches until ctx is done or the target has enough. It lists at
// first, and again when the resource version has expired; otherwise a broken watch
// is resumed.
func (f follower) run(ctx context.Context, to target) {
	logger := klog.FromContext(ctx)
	ctx = unlogged(ctx)
	delay := minDelay
	version, newest := "", f.list
	for ctx.Err() == nil {
		began := f.clock.Now()
		listed := version == ""
		var enough bool
		var err error
		if listed {
			f.list, version, enough, err = f.all(ctx, to, append([]func() client.ObjectList{newest}, f.older...))
		} else {
			version, enough, err = f.changes(ctx, version, to)
		}
		if enough || ctx.Err() != nil {
			return
		}
		if err != nil {
			logger.V(2).Info("Failed to watch objects of pods, will retry", "selector", f.of.FieldSelector, "namespace", f.of.Namespace, "err", err)
			to.failed(err)
		}
		switch {
		case err == nil && listed:
			continue
		case !listed && f.clock.Since(began) >= longWatch:
			delay = minDelay
			continue
		}
		f.rest(ctx, delay+time.Duration(f.random()*float64(delay)))
		delay = min(2*delay, maxDelay)
	}
}

// unlogged returns the context of requests whose failures the caller reports: client-go
// logs an error when a request is cancelled while it reads the response, which is what
// happens to requests for a pod that is removed.
func unlogged(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }

func (f follower) rest(ctx context.Context, delay time.Duration) {
	timer := f.clock.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	}
}

// all lists the objects, in the first of the versions of their kind that the API server
// serves. version is the resource version from which to watch.
func (f follower) all(ctx context.Context, to target, versions []func() client.ObjectList) (served func() client.ObjectList, version string, enough bool, err error) {
	var list client.ObjectList
	for _, served = range versions {
		list = served()
		if err = f.client.List(ctx, list, &f.of); !apierrors.IsNotFound(err) {
			break
		}
	}
	if err != nil {
		return served, "", false, err
	}
	var objects []client.Object
	err = meta.EachListItem(list, func(o runtime.Object) error {
		object, ok := o.(client.Object)
		if !ok {
			return fmt.Errorf("a list of %T holds a %T", list, o)
		}
		objects = append(objects, object)
		return nil
	})
	if err != nil {
		return served, "", false, err
	}
	if version = list.GetResourceVersion(); version == "" {
		return served, "", false, fmt.Errorf("a list of %T has no resource version", list)
	}
	return served, version, to.replace(objects), nil
}

// changes watches from a resource version until the watch ends, and returns the
// last version, or "" if it has expired.
func (f follower) changes(ctx context.Context, version string, to target) (last string, enough bool, err error) {
	of := f.of
	of.Raw = &metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true}
	events, err := f.client.Watch(ctx, f.list(), &of)
	if err != nil {
		return unlessExpired(version, err), false, err
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		if event.Type == watch.Error {
			err := apierrors.FromObject(event.Object)
			return unlessExpired(version, err), false, err
		}
		object, ok := event.Object.(client.Object)
		if !ok {
			return version, false, fmt.Errorf("watching %T has given a %T", f.list(), event.Object)
		}
		version = object.GetResourceVersion()
		switch event.Type {
		case watch.Added, watch.Modified:
			if to.set(object) {
				return version, true, nil
			}
		case watch.Deleted:
			to.remove(object)
		}
	}
	return version, false, nil
}

// unlessExpired returns the version, or "" if a list has to come first: after an upgrade of
// the API server, for example, which no longer serves the version of the kind.
func unlessExpired(version string, err error) string {
	if apierrors.IsResourceExpired(err) || apierrors.IsNotFound(err) || apierrors.IsGone(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		return ""
	}
	return version
}
