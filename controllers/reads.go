package controllers

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"svc.dev/svc/controllers/controller"
)

// reads are the names of the controllers by the Go types that they read. It logs
// which controllers are affected when a type cannot be listed or watched.
type reads struct {
	controllers map[string][]string

	mu       sync.Mutex
	reported map[string]bool
}

func readers(picked []controller.Controller) *reads {
	r := &reads{controllers: map[string][]string{}, reported: map[string]bool{}}
	for _, c := range picked {
		for _, obj := range append(slices.Clip(c.Reads), c.Older...) {
			name := fmt.Sprintf("%T", obj)
			r.controllers[name] = append(r.controllers[name], c.Name)
		}
	}
	return r
}

// selectors returns the field selectors of those Go types of which the shared cache
// holds only some objects: all their readers limit them, by the same selector.
func selectors(picked []controller.Controller) map[string]fields.Selector {
	readers, limits := map[string]int{}, map[string][]fields.Selector{}
	for _, c := range picked {
		for _, obj := range c.Reads {
			readers[fmt.Sprintf("%T", obj)]++
		}
		for _, s := range c.Selectors {
			name := fmt.Sprintf("%T", s.Object)
			limits[name] = append(limits[name], s.Fields)
		}
	}
	selected := map[string]fields.Selector{}
	for name, of := range limits {
		differs := func(s fields.Selector) bool { return s.String() != of[0].String() }
		if len(of) == readers[name] && !slices.ContainsFunc(of, differs) {
			selected[name] = of[0]
		}
	}
	return selected
}

// failed implements toolscache.WatchErrorHandlerWithContext. It only logs, because
// the reflector retries by itself.
func (r *reads) failed(ctx context.Context, reflector *toolscache.Reflector, err error) {
	kind := reflector.TypeDescription()
	switch {
	case apierrors.IsForbidden(err):
		if r.first(kind) {
			klog.FromContext(ctx).Error(err, "Failed to list or watch kind, permission denied", "kind", kind, "controllers", r.controllers[kind])
		}
	case utilnet.IsConnectionRefused(err), utilnet.IsConnectionReset(err), utilnet.IsProbableEOF(err), utilnet.IsHTTP2ConnectionLost(err):
		// The elector logs that the API server is not available.
		klog.FromContext(ctx).V(2).Info("Restarting watch", "kind", kind, "reason", err.Error())
	default:
		toolscache.DefaultWatchErrorHandler(ctx, reflector, err)
	}
}

// first reports whether this is the first call for the kind.
func (r *reads) first(kind string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.reported[kind] = true }()
	return !r.reported[kind]
}
