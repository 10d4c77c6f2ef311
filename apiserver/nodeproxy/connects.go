package nodeproxy

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"svc.dev/svc/apis/resource"
)

// Connects are the Connects of kinds, in all groups that serve them.
type Connects map[subresource]resource.Connect

// subresource identifies a Connect.
type subresource struct {
	schema.GroupResource
	name string
}

// NewConnects returns the Connects of the kinds.
func NewConnects(kinds []*resource.Kind) Connects {
	connects := Connects{}
	for _, k := range kinds {
		for _, c := range k.Connects {
			for _, gvk := range k.GVKs() {
				connects[subresource{schema.GroupResource{Group: gvk.Group, Resource: k.Name}, c.Name}] = c
			}
		}
	}
	return connects
}

// of returns the Connect that a request is for, and reports whether there is one.
func (c Connects) of(info *request.RequestInfo) (resource.Connect, bool) {
	if !info.IsResourceRequest || info.Subresource == "" {
		return resource.Connect{}, false
	}
	connect, ok := c[subresource{schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Subresource}]
	return connect, ok
}

// Proxies reports whether a request is proxied to a node, a pod or a service. Its body and
// its query are then for the backend. It needs the request info.
func (c Connects) Proxies(req *http.Request) bool {
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok {
		return false
	}
	_, proxied := c.of(info)
	return proxied
}
