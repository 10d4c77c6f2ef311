package apiserver

import (
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/authorization"
	"svc.dev/svc/apiserver/inprocess"
	"svc.dev/svc/apiserver/registry"
	"svc.dev/svc/apiserver/view"
)

// internalView shows the kinds in all their versions to the server's own
// clients. It has no port, no admission and no authorization. What is not a
// kind (custom resources, APIServices, discovery) it leaves to the public
// chain.
type internalView struct {
	handler http.Handler
	// rest is set before made is closed.
	rest http.Handler
	made chan struct{}
}

func newInternalView(scheme *runtime.Scheme, kinds *registry.Registry, authorizer authorization.Authorizer) (*internalView, error) {
	v := &internalView{made: make(chan struct{})}
	served := genericapiserver.NewAPIServerHandler("internal", serializer.NewCodecFactory(scheme), inprocess.Chain, http.HandlerFunc(v.serveRest))
	_, err := view.View{
		Scheme:            scheme,
		Versions:          func(k *resource.Kind) []schema.GroupVersionKind { return k.GVKs() },
		Converter:         noFieldManagement,
		Authorizer:        authorizer,
		Equivalents:       runtime.NewEquivalentResourceRegistry(),
		MinRequestTimeout: 30 * time.Minute,
	}.Install(served.GoRestfulContainer, kinds)
	if err != nil {
		return nil, err
	}
	v.handler = served
	return v, nil
}

// ServeHTTP implements http.Handler.
func (v *internalView) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	v.handler.ServeHTTP(w, req)
}

// complete says where requests go that are not for a kind.
func (v *internalView) complete(rest http.Handler) {
	v.rest = rest
	close(v.made)
}

// serveRest lets requests that come while the chain is being put together wait.
func (v *internalView) serveRest(w http.ResponseWriter, req *http.Request) {
	select {
	case <-v.made:
		v.rest.ServeHTTP(w, req)
	case <-req.Context().Done():
		http.Error(w, "the server stopped before it was put together", http.StatusServiceUnavailable)
	}
}
