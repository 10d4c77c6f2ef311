// Package routecache finds the route of a request.
//
// The library compares the path with every route of a group version, of which
// core has two hundred, and copies those that fit. Nearly all requests are for
// objects, their route does not depend on the object's name and namespace, and
// there are few others: the library is asked once for each.
package routecache

import (
	"net/http"
	"strings"
	"sync"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/apiserver/pkg/endpoints/request"
)

const (
	// mostKnown bounds the routes that are remembered. The media types of a
	// request are part of what tells it apart, and a client's choice.
	mostKnown = 2048
	// longestType is from what length on media types are not remembered.
	longestType = 256
)

// Router remembers what the library's router selects for resource requests. It
// needs the request info. Its zero value is ready.
type Router struct {
	library restful.CurlyRouter

	mu sync.RWMutex
	// services are those that known is about.
	services []*restful.WebService
	known    map[target]choice
}

var _ restful.RouteSelector = &Router{}

// target is all of a resource request that its route depends on.
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
		return r.library.SelectRoute(services, req)
	}
	if c, ok := r.find(services, t); ok {
		return c.service, c.route, nil
	}
	service, route, err := r.library.SelectRoute(services, req)
	if err == nil {
		r.remember(services, t, choice{service, route})
	}
	return service, route, err
}

func (r *Router) find(services []*restful.WebService, t target) (choice, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if !same(r.services, services) {
		return choice{}, false
	}
	c, ok := r.known[t]
	return c, ok
}

func (r *Router) remember(services []*restful.WebService, t target, c choice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !same(r.services, services) {
		r.services, r.known = services, map[target]choice{}
	}
	if len(r.known) < mostKnown {
		r.known[t] = c
	}
}

// same reports whether two slices are one. The container appends to its own, or
// makes another.
func same(a, b []*restful.WebService) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// targetOf is the target of a request whose path is that of a resource, of an
// object or of an object's subresource, and no more.
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
	return t, ok && rest == "" && len(t.contentType) < longestType && len(t.accept) < longestType
}
