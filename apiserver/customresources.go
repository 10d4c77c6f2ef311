package apiserver

import (
	"net/http"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// noProtobuf is the server of custom resources. It answers protobuf objects with
// 415 (document 1, section 4): the library's decoder of custom resources has no
// protobuf, dereferences nil and drops the connection.
type noProtobuf struct {
	genericapiserver.DelegationTarget
	serializer runtime.NegotiatedSerializer
}

// UnprotectedHandler implements genericapiserver.DelegationTarget.
func (n noProtobuf) UnprotectedHandler() http.Handler {
	next := n.DelegationTarget.UnprotectedHandler()
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if sendsProtobufObject(req) {
			err := negotiation.NewUnsupportedMediaTypeError([]string{runtime.ContentTypeJSON, runtime.ContentTypeYAML})
			responsewriters.ErrorNegotiated(err, n.serializer, schema.GroupVersion{}, w, req)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// sendsProtobufObject reports whether the body is a custom resource in
// protobuf. Definitions, scales and the options of a deletion have Go types and
// are accepted in protobuf.
func sendsProtobufObject(req *http.Request) bool {
	if req.Method != http.MethodPost && req.Method != http.MethodPut || !strings.Contains(req.Header.Get("Content-Type"), "protobuf") {
		return false
	}
	info, ok := request.RequestInfoFrom(req.Context())
	return ok && info.IsResourceRequest && info.APIGroup != apiextensionsv1.GroupName && info.Subresource != "scale"
}

// addCreatedAt is a transformation of the informer by which the server of custom
// resources learns of definitions. A type without columns of its own gets the
// column Created At in tables (document 1, section 2); the library's own choice is
// Age.
func addCreatedAt(obj any) (any, error) {
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return obj, nil
	}
	for i := range crd.Spec.Versions {
		if version := &crd.Spec.Versions[i]; len(version.AdditionalPrinterColumns) == 0 {
			version.AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{{
				Name: "Created At", Type: "date", JSONPath: ".metadata.creationTimestamp",
				Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
			}}
		}
	}
	return crd, nil
}
