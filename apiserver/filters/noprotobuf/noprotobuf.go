// Package noprotobuf owns the refusal of custom resources in protobuf.
package noprotobuf

import (
	"net/http"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Filter answers custom resources in protobuf with 415 (document 1, section 4): the
// library's decoder of custom resources has no protobuf, dereferences nil and drops
// the connection. handler is that of the server of custom resources. It needs the
// request info.
func Filter(handler http.Handler, s runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if sendsObject(req) {
			err := negotiation.NewUnsupportedMediaTypeError([]string{runtime.ContentTypeJSON, runtime.ContentTypeYAML})
			responsewriters.ErrorNegotiated(err, s, schema.GroupVersion{}, w, req)
			return
		}
		handler.ServeHTTP(w, req)
	})
}

// sendsObject reports whether the body is a custom resource in protobuf.
// Definitions, scales and the options of a deletion have Go types and are accepted
// in protobuf.
func sendsObject(req *http.Request) bool {
	if req.Method != http.MethodPost && req.Method != http.MethodPut || !strings.Contains(req.Header.Get("Content-Type"), "protobuf") {
		return false
	}
	info, ok := request.RequestInfoFrom(req.Context())
	return ok && info.IsResourceRequest && info.APIGroup != apiextensionsv1.GroupName && info.Subresource != "scale"
}
