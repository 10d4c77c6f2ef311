package release

import (
	"context"
	"net/http"
	"regexp"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"svc.dev/svc/apis/resource"
)

// Warnings drops the warnings of kinds' versions that were not yet deprecated
// in a release. The libraries warn as of their own release.
func Warnings(handler http.Handler, r Release, kinds []*resource.Kind) http.Handler {
	later := deprecatedLater(r, kinds)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if info, ok := request.RequestInfoFrom(req.Context()); ok && later[schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}] {
			req = req.WithContext(warning.WithWarningRecorder(req.Context(), recorder{req.Context(), r}))
		}
		handler.ServeHTTP(w, req)
	})
}

// deprecatedLater are the resources of the versions that were deprecated after r.
func deprecatedLater(r Release, kinds []*resource.Kind) map[schema.GroupVersionResource]bool {
	later := map[schema.GroupVersionResource]bool{}
	for _, kind := range kinds {
		add := func(gvk schema.GroupVersionKind, obj runtime.Object) {
			if d, ok := obj.(interface{ APILifecycleDeprecated() (int, int) }); ok {
				major, minor := d.APILifecycleDeprecated()
				if r.Before(Release{major, minor}) {
					later[gvk.GroupVersion().WithResource(kind.Name)] = true
				}
			}
		}
		add(kind.Hub, kind.New())
		for _, version := range kind.Versions {
			add(version.GVK, version.New())
		}
	}
	return later
}

// recorder passes warnings on to the recorder of a context.
type recorder struct {
	next    context.Context
	release Release
}

// AddWarning implements warning.Recorder.
func (r recorder) AddWarning(agent, text string) {
	if !premature(text, r.release) {
		warning.AddWarning(r.next, agent, text)
	}
}

// deprecation is how the libraries begin such a warning.
var deprecation = regexp.MustCompile(`^\S+ \S+ is deprecated in v(\d+\.\d+)\+`)

// premature reports whether text announces a deprecation of a later release.
func premature(text string, r Release) bool {
	found := deprecation.FindStringSubmatch(text)
	if found == nil {
		return false
	}
	since, err := parse(found[1])
	return err == nil && r.Before(since)
}
