// Package deprecation owns what the emulated release reports about deprecated versions, in
// place of what the libraries, which are of the newest release, do: warnings, annotations
// of audit events and series of metrics.
package deprecation

import (
	"context"
	"net/http"
	"regexp"
	"strings"

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
	"svc.dev/svc/internal/releases"
)

// Versions are the versions of kinds that the libraries deprecate.
type Versions struct {
	release releases.Release
	table   *releases.Table
	// silent are the deprecated versions; true if the release does not warn of them. A
	// subresource whose body is of a deprecated version is RESOURCE/SUBRESOURCE.
	silent map[schema.GroupVersionResource]bool
}

// At returns the versions of the kinds that the libraries deprecate, and which of them
// release r does.
func At(r release.Release, table *releases.Table, kinds []*resource.Kind) *Versions {
	v := &Versions{release: releases.Release(r.Minor), table: table, silent: map[schema.GroupVersionResource]bool{}}
	for _, kind := range kinds {
		v.add(kind.Name, kind.Hub, kind.New())
		for _, version := range kind.Versions {
			v.add(kind.Name, version.GVK, version.New())
		}
		for _, action := range kind.Actions {
			for _, body := range action.InputVersions {
				if k := table.Kind(body.GVK); k != nil {
					v.silent[kind.Hub.GroupVersion().WithResource(kind.Name+"/"+action.Name)] = v.release < releases.WarningsSince || !k.DeprecatedAt(v.release)
				}
			}
		}
	}
	// Kinds of the libraries' servers, which have no declaration.
	v.add("apiservices", apiregistrationv1beta1.SchemeGroupVersion.WithKind("APIService"), &apiregistrationv1beta1.APIService{})
	v.add("customresourcedefinitions", apiextensionsv1beta1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), &apiextensionsv1beta1.CustomResourceDefinition{})
	return v
}

// add adds a version of which the libraries warn because of its Go type. That may be the type of
// a later version, which was deprecated later: the table has the version's own release.
func (v *Versions) add(name string, gvk schema.GroupVersionKind, obj runtime.Object) {
	d, ok := obj.(interface{ APILifecycleDeprecated() (int, int) })
	if !ok {
		return
	}
	_, minor := d.APILifecycleDeprecated()
	isDeprecated := v.release >= releases.Release(minor)
	if k := v.table.Kind(gvk); k != nil {
		isDeprecated = k.DeprecatedAt(v.release)
	}
	v.silent[gvk.GroupVersion().WithResource(name)] = v.release < releases.WarningsSince || !isDeprecated
}

// Silent reports whether the libraries deprecate the version of a resource, or that of a
// subresource's body, and the release does not warn of it.
func (v *Versions) Silent(gvr schema.GroupVersionResource, subresource string) bool {
	silent, _ := v.deprecated(gvr, subresource)
	return silent
}

// deprecated returns the entry of silent, and whether there is one.
func (v *Versions) deprecated(gvr schema.GroupVersionResource, subresource string) (silent, ok bool) {
	body := gvr
	body.Resource += "/" + subresource
	if silent, ok = v.silent[body]; ok {
		return silent, true
	}
	silent, ok = v.silent[gvr]
	return silent, ok
}

// Filter drops the warnings about versions of which the release does not warn, and gives
// those about others the words of the release.
func (v *Versions) Filter(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if info, ok := request.RequestInfoFrom(req.Context()); ok {
			gvr := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
			if silent, deprecated := v.deprecated(gvr, info.Subresource); deprecated {
				req = req.WithContext(warning.WithWarningRecorder(req.Context(), recorder{req.Context(), v, silent}))
			}
		}
		handler.ServeHTTP(w, req)
	})
}

// recorder passes the warnings of the release on to the recorder of a context.
type recorder struct {
	next     context.Context
	versions *Versions
	silent   bool
}

// AddWarning implements warning.Recorder.
func (r recorder) AddWarning(agent, text string) {
	if found := deprecated.FindStringSubmatch(text); found != nil {
		if r.silent {
			return
		}
		if k := r.versions.table.Kind(schema.FromAPIVersionAndKind(found[1], found[2])); k != nil {
			if !k.DeprecatedAt(r.versions.release) { // its Go type is that of a deprecated version
				return
			}
			words := r.versions.table.Warning(k, r.versions.release)
			if !strings.Contains(text, replacement) { // the kind declares none
				words, _, _ = strings.Cut(words, replacement)
			}
			text = words
		}
	}
	warning.AddWarning(r.next, agent, text)
}

// replacement is what is between the words about a version and those about its replacement.
const replacement = "; use "

// deprecated matches the beginning of the libraries' deprecation warnings.
var deprecated = regexp.MustCompile(`^(\S+) (\S+) is deprecated in v\d+\.\d+\+`)

// The libraries' annotations of requests to deprecated versions.
const (
	deprecatedAnnotation = "k8s.io/deprecated"
	removedAnnotation    = "k8s.io/removed-release"
)

// Audit returns a backend that passes events on to next, those of requests to versions of
// which the release does not warn without the annotations of deprecated ones.
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
		if o := e.ObjectRef; o != nil && b.versions.Silent(schema.GroupVersionResource{Group: o.APIGroup, Version: o.APIVersion, Resource: o.Resource}, o.Subresource) {
			delete(e.Annotations, deprecatedAnnotation)
			delete(e.Annotations, removedAnnotation)
		}
	}
	return b.Backend.ProcessEvents(events...)
}
