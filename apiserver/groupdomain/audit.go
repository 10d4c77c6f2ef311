package groupdomain

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
)

// Audit returns a backend that passes events on to next in the names of the domain,
// with the objects and the errors in them, whatever address a request came to. config is
// that of the filter.
func Audit(next audit.Backend, config Config) audit.Backend {
	return auditBackend{next, &filter{Config: config}}
}

type auditBackend struct {
	audit.Backend
	filter *filter
}

// ProcessEvents implements audit.Sink.
func (b auditBackend) ProcessEvents(events ...*auditapi.Event) bool {
	public := make([]*auditapi.Event, len(events))
	for i, e := range events {
		public[i] = b.filter.event(e)
	}
	return b.Backend.ProcessEvents(public...)
}

// event returns an event in the names of the domain. The event itself stays as it is: the
// library passes the same one again at the next stage of its request.
func (f *filter) event(e *auditapi.Event) *auditapi.Event {
	if e.ObjectRef == nil || f.Names.OfHost(e.ObjectRef.APIGroup, e.ObjectRef.Resource) {
		return e
	}
	e = e.DeepCopy()
	o := e.ObjectRef
	to := route{gv: schema.GroupVersion{Group: o.APIGroup, Version: o.APIVersion}, resource: o.Resource}
	byGroup := namedByGroup[schema.GroupResource{Group: o.APIGroup, Resource: o.Resource}] != nil
	o.APIGroup = f.Names.Public(o.APIGroup)
	var paths [2]string
	if uri, err := url.ParseRequestURI(e.RequestURI); err == nil {
		paths[0] = uri.Path
		uri.Path, _ = f.publicPath(uri.Path)
		if byGroup && o.Name != "" {
			public := f.Names.toWire().qualified(o.Name)
			uri.Path = strings.Replace(uri.Path, "/"+o.Resource+"/"+o.Name, "/"+o.Resource+"/"+public, 1)
		}
		uri.RawPath, paths[1] = "", uri.Path
		e.RequestURI = uri.RequestURI()
	}
	if byGroup && o.Name != "" {
		o.Name = f.Names.toWire().qualified(o.Name)
	}
	root := f.toPublic(to)
	failed := e.ResponseStatus != nil && e.ResponseStatus.Code >= http.StatusBadRequest
	if failed {
		f.Names.name(e.ResponseStatus, paths)
	}
	for _, object := range []*runtime.Unknown{e.RequestObject, e.ResponseObject} {
		if object == nil || object.ContentType != runtime.ContentTypeJSON {
			continue
		}
		if failed && object == e.ResponseObject {
			if status, err := f.status(object.ContentType, object.Raw, paths); err == nil { // what the server encoded
				object.Raw = status
			}
			continue
		}
		object.Raw = root.json(object.Raw, "")
	}
	return e
}
