// Package objectwatch is the filter that serves watches of one object on the
// object's own path (document 1, section 4: a watch is a GET of a list or get path
// with the query watch=1).
package objectwatch

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Filter passes a watch on the path of an object to next as a watch of the
// collection that selects the object by its name. It must surround the filter
// that adds the request info, so that the request is authorized, counted and
// audited as a watch. Requests without a parameter watch cost one comparison.
func Filter(next http.Handler, resolver request.RequestInfoResolver) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodGet && strings.Contains(req.URL.RawQuery, "watch") {
			req = ofCollection(req, resolver)
		}
		next.ServeHTTP(w, req)
	})
}

// ofCollection returns the request for the collection that is the same as req, or
// req if it is not a watch on the path of an object.
func ofCollection(req *http.Request, resolver request.RequestInfoResolver) *http.Request {
	query := req.URL.Query()
	watch, given := false, query["watch"]
	if len(given) == 0 || runtime.Convert_Slice_string_To_bool(&given, &watch, nil) != nil || !watch {
		return req
	}
	info, err := resolver.NewRequestInfo(req)
	if err != nil || !info.IsResourceRequest || info.Verb != "get" || info.Subresource != "" {
		return req
	}
	collection, ok := strings.CutSuffix(strings.TrimSuffix(req.URL.Path, "/"), "/"+info.Name)
	if !ok {
		return req
	}
	selector := fields.OneTermEqualSelector("metadata.name", info.Name).String()
	if also := query.Get("fieldSelector"); also != "" {
		selector = also + "," + selector
	}
	query.Set("fieldSelector", selector)
	translated := req.WithContext(req.Context())
	translated.URL = &url.URL{Path: collection, RawQuery: query.Encode()}
	return translated
}
