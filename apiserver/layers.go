package apiserver

import (
	"net"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"

	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/apiserver/itemcache"
	"svc.dev/svc/apiserver/netbatch"
	"svc.dev/svc/apiserver/routecache"
	"svc.dev/svc/apiserver/storage"
)

// layers are the layers of the server that exist only for speed or memory. Each is used if its
// gate is on; otherwise the library's code does the same.
type layers struct{ gate featuregate.FeatureGate }

// listener returns l, with batched writes if SvcBatchedWrites is on.
func (a layers) listener(l net.Listener) net.Listener {
	if !a.gate.Enabled(gates.SvcBatchedWrites) {
		return l
	}
	return netbatch.NewListener(l)
}

// sendPending sends what is pending on connections that were accepted by listener.
func sendPending(listener net.Listener) {
	if l, ok := listener.(*netbatch.Listener); ok {
		l.Drain()
	}
}

// router returns the router of the kinds' routes, which caches its choices if
// SvcCachedRoutes is on.
func (a layers) router(routes restful.RouteSelector) restful.RouteSelector {
	if !a.gate.Enabled(gates.SvcCachedRoutes) {
		return routes
	}
	return routecache.New(routes)
}

// sharedWatches reports whether equal watches share one (storage.Config.SharedWatches).
func (a layers) sharedWatches() bool { return a.gate.Enabled(gates.SvcSharedWatches) }

// partWatches reports whether watches of a part of a kind begin with a list
// (storage.Config.PartWatches).
func (a layers) partWatches() bool { return a.gate.Enabled(gates.SvcPartWatches) }

// historyBytes bounds the history of watch caches (storage.Config.HistoryBytes), if
// SvcBoundedHistory is on.
func (a layers) historyBytes() int {
	if !a.gate.Enabled(gates.SvcBoundedHistory) {
		return 0
	}
	return storage.DefaultHistoryBytes
}

// fastJSON reports whether package jsonencoding is used (view.View.FastJSON).
func (a layers) fastJSON() bool { return a.gate.Enabled(gates.SvcFastJSON) }

// allRoutes reports whether all routes are made at the start (view.View.AllRoutes).
func (a layers) allRoutes() bool { return !a.gate.Enabled(gates.SvcLazyRoutes) }

// definitionCodec returns the codec of stored CustomResourceDefinitions, whose states share
// their specification if SvcSharedDefinitions is on.
func (a layers) definitionCodec(codec runtime.Codec) runtime.Codec {
	if !a.gate.Enabled(gates.SvcSharedDefinitions) {
		return codec
	}
	return newDefinitionCodec(codec)
}

// definitionTransform returns a transform function of the informer of definitions: the
// given one, and sharing of specifications if SvcSharedDefinitions is on.
func (a layers) definitionTransform(transform cache.TransformFunc) cache.TransformFunc {
	if !a.gate.Enabled(gates.SvcSharedDefinitions) {
		return transform
	}
	return shareSpecs(transform)
}

// earlyInformers returns the informers that have to sync before the post-start hooks.
func (a layers) earlyInformers(all []informerFactory) []informerFactory {
	if !a.gate.Enabled(gates.SvcEarlyInformers) {
		return nil
	}
	return all
}

// items returns the cache of encoded items of lists (view.View.Items), or nil if
// SvcCachedLists is off.
func (a layers) items(clock clock.PassiveClock) *itemcache.Cache {
	if !a.gate.Enabled(gates.SvcCachedLists) {
		return nil
	}
	return itemcache.New(itemcache.DefaultLimit, clock)
}
