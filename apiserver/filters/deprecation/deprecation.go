// Package deprecation owns the removal of what the libraries report about versions
// that they have deprecated and the emulated release has not: warnings, annotations
// of audit events and series of metrics.
package deprecation

import (
	"context"
	"net/http"
	"regexp"
	"strconv"

	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	apiregistrationv1beta1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1beta1"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/release"
)

// Versions are the versions of kinds that were deprecated after a release.
type Versions struct {
	release release.Release
	later   map[schema.GroupVersionResource]bool
}

// After returns the versions of the kinds that were deprecated after r.
func After(r release.Release, kinds []*resource.Kind) *Versions {
	v := &Versions{release: r, later: map[schema.GroupVersionResource]bool{}}
	for _, kind := range kinds {
		v.add(kind.Name, kind.Hub, kind.New())
		for _, version := range kind.Versions {
			v.add(kind.Name, version.GVK, version.New())
		}
	}
	// Kinds of the libraries' servers, which have no declaration.
	v.add("apiservices", apiregistrationv1beta1.SchemeGroupVersion.WithKind("APIService"), &apiregistrationv1beta1.APIService{})
	v.add("customresourcedefinitions", apiextensionsv1beta1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), &apiextensionsv1beta1.CustomResourceDefinition{})
	return v
}

func (v *Versions) add(name string, gvk schema.GroupVersionKind, obj runtime.Object) {
	if d, ok := obj.(interface{ APILifecycleDeprecated() (int, int) }); ok {
		major, minor := d.APILifecycleDeprecated()
		if v.release.Before(release.Release{Major: major, Minor: minor}) {
			v.later[gvk.GroupVersion().WithResource(name)] = true
		}
	}
}

// Has reports whether the resource's version was deprecated after the release.
func (v *Versions) Has(gvr schema.GroupVersionResource) bool { return v.later[gvr] }

// Filter drops the warnings about these versions.
func (v *Versions) Filter(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if info, ok := request.RequestInfoFrom(req.Context()); ok && v.Has(schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}) {
			req = req.WithContext(warning.WithWarningRecorder(req.Context(), recorder{req.Context(), v.release}))
		}
		handler.ServeHTTP(w, req)
	})
}

// recorder passes the warnings of the release on to the recorder of a context.
type recorder struct {
	next    context.Context
	release release.Release
}

// AddWarning implements warning.Recorder.
func (r recorder) AddWarning(agent, text string) {
	if !isLater(text, r.release) {
		warning.AddWarning(r.next, agent, text)
	}
}

// deprecated matches the beginning of the libraries' deprecation warnings.
var deprecated = regexp.MustCompile(`^\S+ \S+ is deprecated in v(\d+)\.(\d+)\+`)

// isLater reports whether text warns of a deprecation in a release after r.
func isLater(text string, r release.Release) bool {
	found := deprecated.FindStringSubmatch(text)
	if found == nil {
		return false
	}
	major, err := strconv.Atoi(found[1])
	if err != nil {
		return false
	}
	minor, err := strconv.Atoi(found[2])
	return err == nil && r.Before(release.Release{Major: major, Minor: minor})
}

// The libraries' annotations of requests to deprecated versions.
const (
	deprecatedAnnotation = "k8s.io/deprecated"
	removedAnnotation    = "k8s.io/removed-release"
)

// Audit returns a backend that passes events on to next, those of requests to these
// versions without the annotations of deprecated ones.
func (v *Versions) Audit(next audit.Backend) audit.Backend {
	return auditBackend{next, v}
}

type auditBackend struct {
	audit.Backend
	versions *Versions
}

// ProcessEvents implements audit.Sink.
func (b auditBackend) ProcessEvents(events ...*auditapi.Event) bool {
	for _, e := range events {
		if o := e.ObjectRef; o != nil && b.versions.Has(schema.GroupVersionResource{Group: o.APIGroup, Version: o.APIVersion, Resource: o.Resource}) {
			delete(e.Annotations, deprecatedAnnotation)
			delete(e.Annotations, removedAnnotation)
		}
	}
	return b.Backend.ProcessEvents(events...)
}
