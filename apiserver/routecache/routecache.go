// Package routecache owns a cache of the routes that requests match.
//
// The library compares the path with every route of a group version, of which core
// has two hundred, and copies those that match. Nearly all requests are for
// resources, and their route does not depend on the names of object and namespace:
// the library looks up each combination of what is left once.
package routecache

import (
	"net/http"
	"strings"
	"sync"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/apiserver/pkg/endpoints/request"
)

const (
	// maxRoutes is the maximum number of cached routes; then the cache begins again.
	// Media types are part of the key, and clients can send any.
	maxRoutes = 2048
	// maxMediaType is the length from which media types are not cached.
	maxMediaType = 256
)

// Router caches the routes that another router selects for resource requests. It needs
// the request info.
type Router struct {
	next restful.RouteSelector

	mu sync.RWMutex
	// services are the web services that the routes belong to.
	services []*restful.WebService
	routes   map[target]choice
}

// New returns a router that caches the choices of next.
func New(next restful.RouteSelector) *Router { return &Router{next: next} }

var _ restful.RouteSelector = &Router{}

// target is what the route of a resource request depends on.
type target struct {
	method, prefix, group, version, resource, subresource string
	namespaced, named                                     bool
	contentType, accept                                   string
}

type choice struct {
	service *restful.WebService
	route   *restful.Route
}

// SelectRoute implements restful.RouteSelector.
func (r *Router) SelectRoute(services []*restful.WebService, req *http.Request) (*restful.WebService, *restful.Route, error) {
	t, ok := targetOf(req)
	if !ok {
		return r.next.SelectRoute(services, req)
	}
	if c, ok := r.find(services, t); ok {
		return c.service, c.route, nil
	}
	service, route, err := r.next.SelectRoute(services, req)
	if err == nil {
		r.add(services, t, choice{service, route})
	}
	return service, route, err
}

func (r *Router) find(services []*restful.WebService, t target) (choice, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if !same(r.services, services) {
		return choice{}, false
	}
	c, ok := r.routes[t]
	return c, ok
}

func (r *Router) add(services []*restful.WebService, t target, c choice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !same(r.services, services) {
		r.services, r.routes = services, map[target]choice{}
	}
	if len(r.routes) == maxRoutes {
		clear(r.routes)
	}
	r.routes[t] = c
}

// same reports whether two slices are the same. The container appends to its slice,
// or makes another one.
func same(a, b []*restful.WebService) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// targetOf returns the target of a request. The path must be that of a resource, an
// object or a subresource of an object, without further segments.
func targetOf(req *http.Request) (target, bool) {
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok || !info.IsResourceRequest || len(info.Parts) < 1 || len(info.Parts) > 3 {
		return target{}, false
	}
	t := target{
		method: req.Method, prefix: info.APIPrefix, group: info.APIGroup, version: info.APIVersion,
		resource: info.Parts[0], named: len(info.Parts) > 1,
		contentType: req.Header.Get(restful.HEADER_ContentType), accept: req.Header.Get(restful.HEADER_Accept),
	}
	if len(info.Parts) > 2 {
		t.subresource = info.Parts[2]
	}
	t.namespaced = info.Namespace != "" && t.resource != "namespaces"
	rest, ok := req.URL.Path, true
	next := func(token string) {
		if ok = ok && token != "" && strings.HasPrefix(rest, "/") && strings.HasPrefix(rest[1:], token); ok {
			rest = rest[1+len(token):]
		}
	}
	next(t.prefix)
	if t.group != "" {
		next(t.group)
	}
	next(t.version)
	if t.namespaced {
		next("namespaces")
		next(info.Namespace)
	}
	for _, part := range info.Parts {
		next(part)
	}
	return t, ok && rest == "" && len(t.contentType) < maxMediaType && len(t.accept) < maxMediaType
}
