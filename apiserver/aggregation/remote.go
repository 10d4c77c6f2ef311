package aggregation

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationlisters "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"
)

// Remote returns a function that reports whether the aggregator proxies a request to
// another server, because the APIService of the path's version refers to one.
func Remote(services apiregistrationlisters.APIServiceLister) func(*http.Request) bool {
	return func(req *http.Request) bool {
		path, ok := strings.CutPrefix(req.URL.Path, "/apis/")
		if !ok {
			return false
		}
		group, path, _ := strings.Cut(path, "/")
		version, _, _ := strings.Cut(path, "/")
		if group == apiregistrationv1.GroupName {
			return false // the aggregator's own, whatever an APIService says
		}
		service, err := services.Get(serviceName(schema.GroupVersion{Group: group, Version: version}))
		return err == nil && service.Spec.Service != nil
	}
}
