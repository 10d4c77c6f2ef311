package groupdomain

import (
	"net/url"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
)

// Audit returns a backend that passes events on to next in the names of the domain,
// with the objects in them, whatever address a request came to. config is that of
// the filter.
func Audit(next audit.Backend, config Config) audit.Backend {
	return auditBackend{next, &filter{Config: config}}
}

type auditBackend struct {
	audit.Backend
	filter *filter
}

// ProcessEvents implements audit.Sink.
func (b auditBackend) ProcessEvents(events ...*auditapi.Event) bool {
	for _, e := range events {
		o := e.ObjectRef
		if o == nil || b.filter.Names.OfHost(o.APIGroup, o.Resource) {
			continue
		}
		to := route{gv: schema.GroupVersion{Group: o.APIGroup, Version: o.APIVersion}, resource: o.Resource}
		root := b.filter.toPublic(to)
		for _, object := range []*runtime.Unknown{e.RequestObject, e.ResponseObject} {
			if object != nil && object.ContentType == runtime.ContentTypeJSON {
				object.Raw = root.json(object.Raw, "")
			}
		}
		o.APIGroup = b.filter.Names.Public(o.APIGroup)
		if uri, err := url.ParseRequestURI(e.RequestURI); err == nil {
			uri.Path, _ = b.filter.publicPath(uri.Path)
			e.RequestURI = uri.RequestURI()
		}
	}
	return b.Backend.ProcessEvents(events...)
}
