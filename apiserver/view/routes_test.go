package view_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"svc.dev/svc/apis"
	"svc.dev/svc/apis/core"
	"svc.dev/svc/apis/policy"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/registry/registrytest"
	"svc.dev/svc/apiserver/view"
)

// everyKind starts a stack of all kinds.
func everyKind(t *testing.T) *registrytest.Stack {
	t.Helper()
	var all []resource.Declaration
	for _, kind := range apis.Kinds() {
		all = append(all, declared{kind})
	}
	return registrytest.Start(t, all...)
}

func viewOf(s *registrytest.Stack) view.View {
	return view.View{
		Scheme:      s.Scheme,
		Versions:    func(k *resource.Kind) []schema.GroupVersionKind { return k.GVKs() },
		Converter:   func(...string) managedfields.TypeConverter { return managedfields.NewDeducedTypeConverter() },
		Authorizer:  authorizerfactory.NewAlwaysAllowAuthorizer(),
		Equivalents: runtime.NewEquivalentResourceRegistry(),
	}
}

// install installs all kinds of the stack on a container.
func install(t *testing.T, v view.View, s *registrytest.Stack) (*restful.Container, *view.Routes) {
	t.Helper()
	container := restful.NewContainer()
	routes, err := v.Install(container, s.Registry)
	if err != nil {
		t.Fatal(err)
	}
	return container, routes
}

// library installs the versions of the groups on a container as the library does.
func library(t *testing.T, v view.View, s *registrytest.Stack, groups []view.Group) (*restful.Container, map[schema.GroupVersion]view.Version) {
	t.Helper()
	container, made := restful.NewContainer(), map[schema.GroupVersion]view.Version{}
	container.Router(restful.CurlyRouter{})
	for _, group := range groups {
		for _, version := range group.Versions {
			storage := map[string]rest.Storage{}
			for _, res := range s.Registry.Resources {
				for _, gvk := range v.Versions(res.Kind) {
					for path, one := range res.Storage {
						if gvk.GroupVersion() == version.GroupVersion {
							storage[path] = one
						}
					}
				}
			}
			var err error
			made[version.GroupVersion], err = v.InstallVersion(container, version.GroupVersion, storage,
				serializer.NewCodecFactory(s.Scheme), managedfields.NewDeducedTypeConverter())
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return container, made
}

func newRequest(t *testing.T, method, path string) *http.Request {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	info, err := (&request.RequestInfoFactory{
		APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
	}).NewRequestInfo(req)
	if err != nil {
		t.Fatal(err)
	}
	return req.WithContext(request.WithRequestInfo(req.Context(), info))
}

func TestDiscoveryIsThatOfTheLibrary(t *testing.T) {
	s := everyKind(t)
	own, other := viewOf(s), viewOf(s)
	container, routes := install(t, own, s)
	theirs, want := library(t, other, s, routes.Groups)
	for _, group := range routes.Groups {
		for _, version := range group.Versions {
			if expected := want[version.GroupVersion].Resources; !reflect.DeepEqual(version.Resources, expected) {
				t.Errorf("%s: %+v, want %+v", version.GroupVersion, version.Resources, expected)
			}
			path := "/apis/" + version.String()
			if group.Name == "" {
				path = "/api/" + version.String()
			}
			mine, expected := httptest.NewRecorder(), httptest.NewRecorder()
			container.Dispatch(mine, newRequest(t, http.MethodGet, path))
			theirs.Dispatch(expected, newRequest(t, http.MethodGet, path))
			if mine.Code != http.StatusOK || mine.Body.String() != expected.Body.String() {
				t.Errorf("%s: %d %s, want %s", path, mine.Code, mine.Body, expected.Body)
			}
			for _, res := range version.Resources {
				gvr := version.WithResource(res.Resource)
				for _, sub := range append([]string{""}, subresources(res.Resource, s)...) {
					if got, want := own.Equivalents.KindFor(gvr, sub), other.Equivalents.KindFor(gvr, sub); got != want {
						t.Errorf("%s %s is of kind %s, want %s", gvr, sub, got, want)
					}
					if got, want := own.Equivalents.EquivalentResourcesFor(gvr, sub), other.Equivalents.EquivalentResourcesFor(gvr, sub); !reflect.DeepEqual(got, want) {
						t.Errorf("%s %s is equivalent to %s, want %s", gvr, sub, got, want)
					}
				}
			}
		}
	}
}

// subresources are those that any kind of the name has.
func subresources(name string, s *registrytest.Stack) []string {
	var found []string
	for _, res := range s.Registry.Resources {
		for path := range res.Storage {
			if parent, sub, ok := strings.Cut(path, "/"); ok && parent == name {
				found = append(found, sub)
			}
		}
	}
	return found
}

// selected is what a router selects, in one line.
func selected(t *testing.T, router restful.RouteSelector, services []*restful.WebService, method, path string) string {
	t.Helper()
	service, route, err := router.SelectRoute(services, newRequest(t, method, path))
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(service.RootPath(), " ", route.Method, " ", route.Path, " ", route.Operation, " ", route.Produces, " ", route.Consumes)
}

func TestEveryRequestGetsTheRouteOfTheLibrary(t *testing.T) {
	s := everyKind(t)
	v := viewOf(s)
	container, routes := install(t, v, s)
	theirs, _ := library(t, viewOf(s), s, routes.Groups)
	paths := sets.New("/api/v1", "/api/v1/", "/api/v2/pods", "/api/v1/none", "/api/v1/namespaces/a/none/b", "/api/v1/namespaces/a/pods/b/none", "/api/v1/pods/", "/api/v1/pods/a/b",
		"/api/v1/namespaces/a/pods/b/status/c", "/api/v1/namespaces/a/nodes/b", "/api/v1/namespaces//pods", "/apis//v1/pods", "/api/v1/namespaces/pods/status", "/api/v1/nodes/proxy", "/apis/apps/v1/pods")
	for _, ws := range theirs.RegisteredWebServices() {
		for _, route := range ws.Routes() {
			paths.Insert(strings.NewReplacer("{namespace}", "a", "{name}", "b", "{path:*}", "c/d").Replace(route.Path))
		}
	}
	for path := range paths {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions} {
			want := selected(t, restful.CurlyRouter{}, theirs.RegisteredWebServices(), method, path)
			if got := selected(t, routes, container.RegisteredWebServices(), method, path); got != want {
				t.Errorf("%s %s: %s, want %s", method, path, got, want)
			}
		}
	}
	for i, ws := range container.RegisteredWebServices() {
		whole, err := routes.Whole(ws)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := len(whole.Routes()), len(theirs.RegisteredWebServices()[i].Routes()); got != want || len(ws.Routes()) != 1 {
			t.Errorf("%s: %d routes, want %d, and %d with discovery only", ws.RootPath(), got, want, len(ws.Routes()))
		}
	}
}

func TestFirstRequestsAtOnceGetTheSameRoutes(t *testing.T) {
	s := registrytest.Start(t, slices.Concat(core.Kinds(), policy.Kinds())...)
	container, routes := install(t, viewOf(s), s)
	paths := []string{
		"/api/v1/pods", "/api/v1/namespaces/a/pods/b", "/api/v1/namespaces/a/pods/b/exec", "/api/v1/namespaces/a/pods/b/proxy/c", "/api/v1/watch/pods",
		"/api/v1/nodes/b/proxy/c", "/api/v1/namespaces/a/pods/b/log", "/api/v1/namespaces/a/pods/b/status", "/api/v1",
	}
	services := container.RegisteredWebServices()
	var made sync.Map
	var clients sync.WaitGroup
	for range 8 {
		for _, path := range paths {
			req := newRequest(t, http.MethodGet, path)
			clients.Go(func() {
				service, route, err := routes.SelectRoute(services, req)
				if err != nil {
					t.Errorf("%s: %v", path, err)
					return
				}
				info, _ := request.RequestInfoFrom(req.Context())
				if info.IsResourceRequest && (route.ParameterDocs != nil || route.ResponseErrors != nil || route.Metadata != nil) {
					t.Errorf("%s has documentation: %+v", path, route)
				}
				if first, known := made.LoadOrStore(info.Resource+"/"+info.Subresource, service); known && first != service {
					t.Errorf("the routes of %s are made twice", path)
				}
			})
		}
	}
	clients.Wait()
}

func TestAllRoutesAreMadeAtOnceIfAskedFor(t *testing.T) {
	s := registrytest.Start(t, slices.Concat(core.Kinds(), policy.Kinds())...)
	for _, all := range []bool{false, true} {
		v, converters := viewOf(s), 0
		v.AllRoutes = all
		v.Converter = func(...string) managedfields.TypeConverter { // is asked for with the first routes of a version
			converters++
			return managedfields.NewDeducedTypeConverter()
		}
		_, routes := install(t, v, s)
		want := 0
		if all {
			for _, group := range routes.Groups {
				want += len(group.Versions)
			}
		}
		if converters != want {
			t.Errorf("all routes %v: %d of %d versions have routes, want %d", all, converters, len(routes.Groups), want)
		}
	}
}
