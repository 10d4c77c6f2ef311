package badoptions

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// queries are options and whether the library logs them as an error.
var queries = map[string]bool{
	"":                                       false,
	"limit=5":                                false,
	"fieldSelector=metadata.name%3Da":        false,
	"watch=true&limit=x":                     true,
	"watch=0&limit=x":                        true,
	"watch=odd&timeoutSeconds=1s":            true,
	"limit=-x&resourceVersion=1":             true,
	"fieldSelector=a%3D%3D%3Db%2C%2C":        true,
	"labelSelector=%21%21":                   true,
	"labelSelector=a&fieldSelector=&limit=x": true,
}

// logged returns what is logged while f runs.
func logged(t *testing.T, f func()) string {
	t.Helper()
	var log bytes.Buffer
	defer klog.ClearLogger()
	klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
	f()
	return log.String()
}

func TestTheRequestIsTheSameWithoutAnErrorInTheLog(t *testing.T) {
	library := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	for query, isBad := range queries {
		t.Run(query, func(t *testing.T) {
			for _, path := range []string{"/api/v1/namespaces/default/pods", "/api/v1/watch/namespaces/default/pods"} {
				req := httptest.NewRequest(http.MethodGet, path+"?"+query, nil)
				var want, got *request.RequestInfo
				isRead := !strings.HasPrefix(path, "/api/v1/watch/") // the library knows the verb by the path
				if noise := logged(t, func() { want, _ = library.NewRequestInfo(req) }); (noise != "") != (isBad && isRead) {
					t.Fatalf("the library logs %q", noise)
				}
				if noise := logged(t, func() { got, _ = Resolver(library).NewRequestInfo(req) }); noise != "" {
					t.Errorf("logged: %s", noise)
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("got %+v, want %+v", got, want)
				}
				if req.URL.RawQuery != query {
					t.Errorf("the request has %q now", req.URL.RawQuery)
				}
			}
		})
	}
}

func TestTheEstimateOfAMalformedRequestIsNotLogged(t *testing.T) {
	library := flowcontrolrequest.NewWorkEstimator(
		func(string) (storage.Stats, error) { return storage.Stats{}, nil },
		func(*request.RequestInfo) int { return 0 }, flowcontrolrequest.DefaultWorkEstimatorConfig(), func(string) uint64 { return 10 })
	req := httptest.NewRequest(http.MethodGet, "/api/v1/pods?limit=x", nil)
	info := &request.RequestInfo{IsResourceRequest: true, Verb: "list", APIVersion: "v1", Resource: "pods"}
	req = req.WithContext(request.WithRequestInfo(req.Context(), info))
	if noise := logged(t, func() { library(req, "", "") }); noise == "" {
		t.Fatal("the library does not log it: is the package needed still?")
	}
	noise := logged(t, func() {
		if estimate := Estimator(library)(req, "", ""); estimate.InitialSeats == 0 {
			t.Error("no seats")
		}
	})
	if noise != "" {
		t.Errorf("logged: %s", noise)
	}
}
