package apiserver

import (
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
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
	// namespaces are those of the host, or nil.
	namespaces *host.Namespaces
	// next is set before completed is closed.
	next      http.Handler
	completed chan struct{}
}

func newInternalView(scheme *runtime.Scheme, kinds *registry.Registry, authorizer authorization.Authorizer, l layers) (*internalView, error) {
	v := &internalView{completed: make(chan struct{})}
	handler := genericapiserver.NewAPIServerHandler("internal", serializer.NewCodecFactory(scheme), inprocess.Chain, http.HandlerFunc(v.serveNext))
	_, err := view.View{
		Scheme:            scheme,
		Versions:          func(k *resource.Kind) []schema.GroupVersionKind { return k.GVKs() },
		Converter:         noFieldManagement,
		Authorizer:        authorizer,
		Equivalents:       runtime.NewEquivalentResourceRegistry(),
		MinRequestTimeout: 30 * time.Minute,
		FastJSON:          l.fastJSON(),
		AllRoutes:         l.allRoutes(),
	}.Install(handler.GoRestfulContainer, kinds)
	v.handler = handler
	return v, err
}

// ServeHTTP implements http.Handler.
func (v *internalView) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if v.namespaces != nil && host.Serves(req) {
		v.namespaces.ServeHTTP(w, req)
		return
	}
	v.handler.ServeHTTP(w, req)
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
