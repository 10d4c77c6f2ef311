package controllers

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"svc.dev/svc/controllers/controller"
)

// reads knows which controllers read which Go types, to tell which of them wait
// when a type cannot be read.
type reads struct {
	controllers map[string][]string

	mu   sync.Mutex
	told map[string]bool
}

func readers(picked []controller.Controller) *reads {
	r := &reads{controllers: map[string][]string{}, told: map[string]bool{}}
	for _, c := range picked {
		for _, obj := range c.Reads {
			name := fmt.Sprintf("%T", obj)
			r.controllers[name] = append(r.controllers[name], c.Name)
		}
	}
	return r
}

// failed is a toolscache.WatchErrorHandlerWithContext: the library tries again,
// by itself, and this tells of it.
func (r *reads) failed(ctx context.Context, reflector *toolscache.Reflector, err error) {
	kind := reflector.TypeDescription()
	switch {
	case apierrors.IsForbidden(err):
		if r.first(kind) {
			klog.FromContext(ctx).Error(err, "These controllers do not work: a right is missing", "controllers", r.controllers[kind])
		}
	case utilnet.IsConnectionRefused(err), utilnet.IsConnectionReset(err), utilnet.IsProbableEOF(err), utilnet.IsHTTP2ConnectionLost(err):
		// Whoever keeps the lease tells that the API server is away.
		klog.FromContext(ctx).V(2).Info("Reads again", "kind", kind, "reason", err.Error())
	default:
		toolscache.DefaultWatchErrorHandler(ctx, reflector, err)
	}
}

// first tells whether it is asked for the first time about the kind.
func (r *reads) first(kind string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.told[kind] = true }()
	return !r.told[kind]
}
