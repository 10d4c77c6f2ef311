package noprotobuf

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func TestOnlyCustomResourcesInProtobufAreRefused(t *testing.T) {
	const protobuf, json = "application/vnd.kubernetes.protobuf", "application/json"
	custom := request.RequestInfo{IsResourceRequest: true, APIGroup: "example.com", APIVersion: "v1", Resource: "widgets"}
	scale := custom
	scale.Subresource = "scale"
	definition := request.RequestInfo{IsResourceRequest: true, APIGroup: "apiextensions.k8s.io", APIVersion: "v1", Resource: "customresourcedefinitions"}
	for _, test := range []struct {
		rule, method, contentType string
		info                      request.RequestInfo
		want                      int
	}{
		{"a creation in protobuf is refused", http.MethodPost, protobuf, custom, http.StatusUnsupportedMediaType},
		{"an update in protobuf is refused", http.MethodPut, protobuf, custom, http.StatusUnsupportedMediaType},
		{"a creation in JSON passes", http.MethodPost, json, custom, http.StatusOK},
		{"the options of a deletion in protobuf pass", http.MethodDelete, protobuf, custom, http.StatusOK},
		{"a scale in protobuf passes", http.MethodPut, protobuf, scale, http.StatusOK},
		{"a definition in protobuf passes", http.MethodPost, protobuf, definition, http.StatusOK},
		{"a path that is not a resource passes", http.MethodPost, protobuf, request.RequestInfo{}, http.StatusOK},
	} {
		t.Run(test.rule, func(t *testing.T) {
			handler := Filter(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), serializer.NewCodecFactory(runtime.NewScheme()))
			req := httptest.NewRequestWithContext(request.WithRequestInfo(t.Context(), &test.info), test.method, "/", nil)
			req.Header.Set("Content-Type", test.contentType)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, req)
			if w.Code != test.want {
				t.Errorf("answered %d, want %d: %s", w.Code, test.want, w.Body)
			}
		})
	}
}
