// Package deprecation owns the removal of deprecation warnings that are newer than
// the emulated release: the libraries warn as of their own release.
package deprecation

import (
	"context"
	"net/http"
	"regexp"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/release"
)

// Filter drops the warnings about versions of the kinds that were not yet
// deprecated in the release.
func Filter(handler http.Handler, r release.Release, kinds []*resource.Kind) http.Handler {
	later := deprecatedLater(r, kinds)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if info, ok := request.RequestInfoFrom(req.Context()); ok && later[schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}] {
			req = req.WithContext(warning.WithWarningRecorder(req.Context(), recorder{req.Context(), r}))
		}
		handler.ServeHTTP(w, req)
	})
}

// deprecatedLater returns the resources of versions that were deprecated after r.
func deprecatedLater(r release.Release, kinds []*resource.Kind) map[schema.GroupVersionResource]bool {
	later := map[schema.GroupVersionResource]bool{}
	for _, kind := range kinds {
		add := func(gvk schema.GroupVersionKind, obj runtime.Object) {
			if d, ok := obj.(interface{ APILifecycleDeprecated() (int, int) }); ok {
				major, minor := d.APILifecycleDeprecated()
				if r.Before(release.Release{Major: major, Minor: minor}) {
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
