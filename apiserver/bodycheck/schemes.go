package bodycheck

import (
	"fmt"
	"net/http"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"svc.dev/svc/apiserver/patcherror"
)

// schemes have the types of the server's resources but custom ones: of the kinds, of
// definitions of custom resources, and of API services. They have different groups.
type schemes []*runtime.Scheme

// of returns the scheme with the types of a group, or nil.
func (s schemes) of(group string) *runtime.Scheme {
	for _, scheme := range s {
		if scheme.IsGroupRegistered(group) {
			return scheme
		}
	}
	return nil
}

// versioned returns a function that converts an object of the store to the version of
// a request.
func (s schemes) versioned(req *http.Request) patcherror.Versioned {
	return func(current runtime.Object) (runtime.Object, error) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || !info.IsResourceRequest {
			return nil, fmt.Errorf("%s is not the path of a resource", req.URL.Path)
		}
		to := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
		if info.Subresource == "scale" {
			to = autoscalingv1.SchemeGroupVersion
		}
		if scheme := s.of(to.Group); scheme != nil {
			return scheme.ConvertToVersion(current, to)
		}
		if of := current.GetObjectKind().GroupVersionKind(); of.GroupVersion() != to {
			return nil, fmt.Errorf("the object is in version %s, and the request in %s", of.GroupVersion(), to)
		}
		return current, nil // a custom resource
	}
}
