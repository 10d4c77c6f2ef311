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
	// install, by version, makes its routes, when somebody first asks for it:
	// the server's clients use few of them.
	install map[string]func() error
	// rest is set before made is closed.
	rest http.Handler
	made chan struct{}
}

func newInternalView(scheme *runtime.Scheme, kinds *registry.Registry, authorizer authorization.Authorizer) *internalView {
	v := &internalView{made: make(chan struct{})}
	handler := genericapiserver.NewAPIServerHandler("internal", serializer.NewCodecFactory(scheme), inprocess.Chain, http.HandlerFunc(v.serveRest))
	v.handler = handler
	v.install = map[string]func() error{}
	for _, gv := range scheme.PrioritizedVersionsAllGroups() {
		v.install[gv.String()] = sync.OnceValue(func() error {
			_, err := view.View{
				Scheme: scheme,
				Versions: func(k *resource.Kind) []schema.GroupVersionKind {
					return slices.DeleteFunc(k.GVKs(), func(gvk schema.GroupVersionKind) bool { return gvk.GroupVersion() != gv })
				},
				Converter:         noFieldManagement,
				Authorizer:        authorizer,
				Equivalents:       runtime.NewEquivalentResourceRegistry(),
				MinRequestTimeout: 30 * time.Minute,
			}.Install(handler.GoRestfulContainer, kinds)
			return err
		})
	}
	return v
}

// ServeHTTP implements http.Handler.
func (v *internalView) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if install := v.install[groupVersion(req.URL.Path)]; install != nil {
		if err := install(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	v.handler.ServeHTTP(w, req)
}

// groupVersion is the version that a path is in, as apiVersion writes it.
func groupVersion(path string) string {
	parts := strings.SplitN(path, "/", 5)
	switch {
	case len(parts) >= 3 && parts[1] == "api":
		return parts[2]
	case len(parts) >= 4 && parts[1] == "apis":
		return parts[2] + "/" + parts[3]
	}
	return ""
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
