package apiserver

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/authorization"
	"svc.dev/svc/apiserver/host"
	"svc.dev/svc/apiserver/inprocess"
	"svc.dev/svc/apiserver/registry"
	"svc.dev/svc/apiserver/view"
)

// internalView serves all versions of the kinds to the server's own clients. It
// has no port, no admission and no authorization. All other requests (custom
// resources, APIServices, discovery) go to the public chain.
type internalView struct {
	handler http.Handler
	// routes makes the routes of a resource in a version with the first request for it:
	// the server's clients use few of them. The empty resource is the whole version.
	routes map[schema.GroupVersionResource]func() (http.Handler, error)
	// namespaces are those of the host, or nil.
	namespaces *host.Namespaces
	// next is set before completed is closed.
	next      http.Handler
	completed chan struct{}
}

func newInternalView(scheme *runtime.Scheme, kinds *registry.Registry, authorizer authorization.Authorizer, fastJSON bool) *internalView {
	v := &internalView{completed: make(chan struct{}), routes: map[schema.GroupVersionResource]func() (http.Handler, error){}}
	v.handler = inprocess.Chain(http.HandlerFunc(v.serve))
	all := view.View{
		Scheme:            scheme,
		Converter:         noFieldManagement,
		Authorizer:        authorizer,
		Equivalents:       runtime.NewEquivalentResourceRegistry(),
		MinRequestTimeout: 30 * time.Minute,
		FastJSON:          fastJSON,
	}
	add := func(gvr schema.GroupVersionResource) {
		if v.routes[gvr] != nil {
			return
		}
		v.routes[gvr] = sync.OnceValues(func() (http.Handler, error) {
			handler := genericapiserver.NewAPIServerHandler("internal", serializer.NewCodecFactory(scheme), unfiltered, http.HandlerFunc(v.serveNext))
			only := all
			only.Versions = func(k *resource.Kind) []schema.GroupVersionKind {
				if gvr.Resource != "" && gvr.Resource != k.Name {
					return nil
				}
				return slices.DeleteFunc(k.GVKs(), func(gvk schema.GroupVersionKind) bool { return gvk.GroupVersion() != gvr.GroupVersion() })
			}
			_, err := only.Install(handler.GoRestfulContainer, kinds)
			return handler, err
		})
	}
	for _, res := range kinds.Resources {
		for _, gvk := range res.Kind.GVKs() {
			add(gvk.GroupVersion().WithResource(res.Kind.Name))
			add(gvk.GroupVersion().WithResource(""))
		}
	}
	return v
}

// unfiltered is the chain of a handler whose requests have passed the filters.
func unfiltered(handler http.Handler) http.Handler { return handler }

// ServeHTTP implements http.Handler.
func (v *internalView) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if v.namespaces != nil && host.Serves(req) {
		v.namespaces.ServeHTTP(w, req)
		return
	}
	v.handler.ServeHTTP(w, req)
}

// serve serves a request that has passed the filters.
func (v *internalView) serve(w http.ResponseWriter, req *http.Request) {
	handler, err := v.route(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	handler.ServeHTTP(w, req)
}

// route returns the handler of a request.
func (v *internalView) route(req *http.Request) (http.Handler, error) {
	gvr := groupVersion(req.URL.Path).WithResource("")
	if info, ok := request.RequestInfoFrom(req.Context()); ok && info.IsResourceRequest {
		gvr.Resource = info.Resource
	}
	routes := v.routes[gvr]
	if routes == nil {
		routes = v.routes[gvr.GroupVersion().WithResource("")]
	}
	if routes == nil {
		return http.HandlerFunc(v.serveNext), nil
	}
	return routes()
}

// groupVersion returns the group and version of a path.
func groupVersion(path string) schema.GroupVersion {
	parts := strings.SplitN(path, "/", 5)
	switch {
	case len(parts) >= 3 && parts[1] == "api":
		return schema.GroupVersion{Version: parts[2]}
	case len(parts) >= 4 && parts[1] == "apis":
		return schema.GroupVersion{Group: parts[2], Version: parts[3]}
	}
	return schema.GroupVersion{}
}

// complete sets the handler of requests that are not for a kind.
func (v *internalView) complete(next http.Handler) {
	v.next = next
	close(v.completed)
}

// serveNext holds requests until complete is called.
func (v *internalView) serveNext(w http.ResponseWriter, req *http.Request) {
	select {
	case <-v.completed:
		v.next.ServeHTTP(w, req)
	case <-req.Context().Done():
		http.Error(w, "the server stopped before it was put together", http.StatusServiceUnavailable)
	}
}

// noFieldManagement returns the type converter of the internal view: the
// server's own writes are not tracked by schema.
func noFieldManagement(...string) managedfields.TypeConverter {
	return managedfields.NewDeducedTypeConverter()
}
