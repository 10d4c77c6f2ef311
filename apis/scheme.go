package apis

import (
	"fmt"
	"reflect"
	"strings"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/apis/resource"
)

// NewScheme makes a scheme with the kinds in all their versions, with
// defaults, conversions and field labels. Each hub is registered under its own
// version and, with its list, as the internal version, so that no conversion
// is needed between requests, memory and etcd.
func NewScheme(kinds []*resource.Kind) (*runtime.Scheme, error) {
	s := NewExternalScheme(kinds)
	for _, k := range kinds {
		if err := k.AddToScheme(s); err != nil {
			return nil, fmt.Errorf("kind %s: %w", k.Resource(), err)
		}
	}
	// It is not a kind of its own, but clients apply it, and server-side apply
	// merges it as the internal version.
	s.AddKnownTypeWithName(schema.GroupVersion{Group: autoscalingv1.GroupName, Version: runtime.APIVersionInternal}.WithKind("Scale"), &autoscalingv1.Scale{})
	return s, nil
}

// ExternalScheme returns the scheme of NewExternalScheme with all kinds. It is made once,
// since that takes milliseconds, and must not be changed.
var ExternalScheme = sync.OnceValue(func() *runtime.Scheme { return NewExternalScheme(Kinds()) })

// NewExternalScheme makes a scheme with the types of the kinds' versions as
// clients see them, without internal versions and conversions.
func NewExternalScheme(kinds []*resource.Kind) *runtime.Scheme {
	s := runtime.NewScheme()
	core := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(s, core)
	s.AddUnversionedTypes(core, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	for _, gv := range groupVersions(kinds) {
		addExternalTypes(s, gv)
	}
	// A version that shares the Go type of another one (resource.Also) is in no package
	// of types.
	for _, k := range kinds {
		for _, v := range k.Versions {
			if s.Recognizes(v.GVK) {
				continue
			}
			s.AddKnownTypeWithName(v.GVK, v.New())
			if list := v.NewList(); list != nil {
				s.AddKnownTypeWithName(v.GVK.GroupVersion().WithKind(v.GVK.Kind+"List"), list)
			}
		}
	}
	return s
}

// groupVersions returns the versions of the kinds, each once. Their order becomes
// the order of priority: a hub comes before the versions declared beside it.
func groupVersions(kinds []*resource.Kind) []schema.GroupVersion {
	seen := map[schema.GroupVersion]bool{}
	var gvs []schema.GroupVersion
	add := func(gv schema.GroupVersion) {
		if !seen[gv] {
			seen[gv] = true
			gvs = append(gvs, gv)
		}
	}
	for _, k := range kinds {
		add(k.Hub.GroupVersion())
		for _, v := range k.Versions {
			add(v.GVK.GroupVersion())
		}
	}
	// autoscaling/v1 is the version of the body of scale subresources. It comes
	// after the kinds' own versions of its group.
	add(schema.GroupVersion{Group: "autoscaling", Version: "v1"})
	// The body of a service account's token subresource.
	add(authenticationv1.SchemeGroupVersion)
	return gvs
}

// addExternalTypes registers all published types of a version: kinds, lists,
// options and the bodies of actions.
func addExternalTypes(s *runtime.Scheme, gv schema.GroupVersion) {
	if gv.Group != "" {
		metav1.AddToGroupVersion(s, gv)
	}
	for kind, obj := range resource.Types(gv) {
		// Those of apimachinery were added above.
		if !strings.HasPrefix(reflect.TypeOf(obj).Elem().PkgPath(), "k8s.io/apimachinery/") {
			s.AddKnownTypeWithName(gv.WithKind(kind), obj)
		}
	}
}
