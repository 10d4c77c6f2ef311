package routecache

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// service has the routes of a version, as the library makes them.
func service(root string, paths ...string) *restful.WebService {
	ws := (&restful.WebService{}).Path(root)
	for _, path := range paths {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPatch} {
			route := ws.Method(method).Path(path).Produces("application/json", "application/vnd.kubernetes.protobuf").
				Operation(method + path).To(func(*restful.Request, *restful.Response) {})
			if method == http.MethodPatch {
				route.Consumes("application/merge-patch+json")
			}
			ws.Route(route)
		}
	}
	return ws
}

func services() []*restful.WebService {
	return []*restful.WebService{
		service("/api/v1", "", "pods", "nodes", "nodes/{name}", "nodes/{name}/proxy", "nodes/{name}/proxy/{path:*}",
			"namespaces", "namespaces/{name}", "namespaces/{name}/status", "namespaces/{namespace}/pods",
			"namespaces/{namespace}/pods/{name}", "namespaces/{namespace}/pods/{name}/status",
			"watch/pods", "watch/namespaces/{namespace}/pods"),
		service("/apis/apps/v1", "", "deployments", "namespaces/{namespace}/deployments/{name}"),
	}
}

type asked struct{ method, path, contentType, accept string }

func (a asked) request(t testing.TB) *http.Request {
	t.Helper()
	req := httptest.NewRequest(a.method, a.path, nil)
	for key, value := range map[string]string{"Content-Type": a.contentType, "Accept": a.accept} {
		if value != "" {
			req.Header.Set(key, value)
		}
	}
	factory := request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	info, err := factory.NewRequestInfo(req)
	if err != nil {
		t.Fatal(err)
	}
	return req.WithContext(request.WithRequestInfo(req.Context(), info))
}

// outcome is what a router selects.
func outcome(t *testing.T, router restful.RouteSelector, all []*restful.WebService, a asked) string {
	t.Helper()
	ws, route, err := router.SelectRoute(all, a.request(t))
	text := fmt.Sprintf("error %v", err)
	if ws != nil {
		text += " in " + ws.RootPath()
	}
	if route != nil {
		text += " route " + route.Operation
	}
	return text
}

func TestEveryRequestGetsTheLibrarysRouteEachTime(t *testing.T) {
	var all []asked
	for _, path := range []string{
		"/", "/healthz", "/api", "/api/v1", "/api/v1/", "/api/v1/pods", "/api/v1/pods/", "/api/v1/pods?watch=true", "/api/v1/pods?fieldSelector=metadata.name%3Da",
		"/api/v1/nodes", "/api/v1/nodes/a", "/api/v1/nodes/proxy", "/api/v1/nodes/a/proxy", "/api/v1/nodes/a/proxy/", "/api/v1/nodes/a/proxy/b/c", "/api/v1/nodes/a/status",
		"/api/v1/namespaces", "/api/v1/namespaces/a", "/api/v1/namespaces/b", "/api/v1/namespaces/pods", "/api/v1/namespaces/a/status", "/api/v1/namespaces/pods/status",
		"/api/v1/namespaces/a/pods", "/api/v1/namespaces/b/pods", "/api/v1/namespaces/a/pods/x", "/api/v1/namespaces/a/pods/status", "/api/v1/namespaces/a/pods/x/status",
		"/api/v1/namespaces/a/pods/x/none", "/api/v1/namespaces/a/pods/x/status/more", "/api/v1/namespaces//pods", "/api/v1//pods", "/api/v1/namespaces/a/nodes/x",
		"/api/v1/watch/pods", "/api/v1/watch/namespaces/a/pods", "/apis/apps/v1", "/apis/apps/v1/deployments", "/apis/apps/v1/namespaces/a/deployments/x",
		"/apis/apps/v2/deployments", "/apis/apps/v1/unknown", "/apis/apps/v1/namespaces/a/deployments",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodPost, "STRANGE"} {
			for _, contentType := range []string{"", "application/json", "application/merge-patch+json"} {
				for _, accept := range []string{"", "application/json", "text/html", "text/html, application/vnd.kubernetes.protobuf;q=0.5", "*/*"} {
					all = append(all, asked{method, path, contentType, accept})
				}
			}
		}
	}
	router, made := New(restful.CurlyRouter{}), services()
	for round := range 3 {
		for _, a := range all {
			want := outcome(t, restful.CurlyRouter{}, made, a)
			if got := outcome(t, router, made, a); got != want {
				t.Errorf("round %d, %+v: %s, want %s", round, a, got, want)
			}
		}
	}
	if len(router.routes) == 0 {
		t.Error("no route was cached")
	}
}

func TestTheNameOfAnObjectIsNotPartOfTheKey(t *testing.T) {
	router, made := New(restful.CurlyRouter{}), services()
	for i := range 100 {
		a := asked{http.MethodGet, fmt.Sprintf("/api/v1/namespaces/ns-%d/pods/pod-%d", i, i), "", "application/json"}
		if got := outcome(t, router, made, a); !strings.Contains(got, "pods/{name}") {
			t.Fatal(got)
		}
	}
	if len(router.routes) != 1 {
		t.Errorf("%d routes are cached", len(router.routes))
	}
}

func TestTheNumberOfCachedRoutesIsBounded(t *testing.T) {
	router, made := New(restful.CurlyRouter{}), services()
	for i := range maxRoutes + 10 {
		outcome(t, router, made, asked{http.MethodGet, "/api/v1/pods", "", fmt.Sprintf("*/*, a/b%d", i)})
	}
	if len(router.routes) != 10 {
		t.Errorf("%d routes are cached, want those since the cache was full", len(router.routes))
	}
	long := New(restful.CurlyRouter{})
	outcome(t, long, made, asked{http.MethodGet, "/api/v1/pods", "", "*/*, " + strings.Repeat("a", maxMediaType)})
	if len(long.routes) != 0 {
		t.Error("a long media type is cached")
	}
}

func TestTheCacheFollowsChangesOfWebServices(t *testing.T) {
	router, made := New(restful.CurlyRouter{}), services()
	a := asked{http.MethodGet, "/apis/apps/v1/deployments", "", ""}
	if got := outcome(t, router, made, a); !strings.Contains(got, "route GETdeployments") {
		t.Fatal(got)
	}
	less := append([]*restful.WebService{}, made[0])
	if got := outcome(t, router, less, a); strings.Contains(got, "route") {
		t.Errorf("after its service was removed: %s", got)
	}
	if got := outcome(t, router, append(less, made[1]), a); !strings.Contains(got, "route GETdeployments") {
		t.Errorf("after its service was added again: %s", got)
	}
}

func BenchmarkSelectRoute(b *testing.B) {
	var paths []string
	for i := range 60 {
		collection := fmt.Sprintf("namespaces/{namespace}/kind%d", i)
		paths = append(paths, collection, collection+"/{name}", collection+"/{name}/status")
	}
	made := []*restful.WebService{service("/api/v1", paths...)}
	req := asked{http.MethodGet, "/api/v1/namespaces/a/kind30/x", "", "application/json"}.request(b)
	for name, router := range map[string]restful.RouteSelector{"cached": New(restful.CurlyRouter{}), "library": restful.CurlyRouter{}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := router.SelectRoute(made, req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
