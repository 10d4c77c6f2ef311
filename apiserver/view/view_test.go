package view_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"svc.dev/svc/apis/autoscaling"
	"svc.dev/svc/apis/core"
	"svc.dev/svc/apis/policy"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/inprocess"
	"svc.dev/svc/apiserver/registry/registrytest"
	"svc.dev/svc/apiserver/view"
)

// show installs a view of the stack's kinds with some of their versions.
func show(t *testing.T, s *registrytest.Stack, shown func(gvk schema.GroupVersionKind) bool) ([]view.Group, http.Handler) {
	t.Helper()
	handler := genericapiserver.NewAPIServerHandler("test", serializer.NewCodecFactory(s.Scheme), inprocess.Chain, http.NotFoundHandler())
	routes, err := view.View{
		FastJSON: true,
		Scheme:   s.Scheme,
		Versions: func(k *resource.Kind) []schema.GroupVersionKind {
			var gvks []schema.GroupVersionKind
			for _, gvk := range k.GVKs() {
				if shown(gvk) {
					gvks = append(gvks, gvk)
				}
			}
			return gvks
		},
		Body:        shown,
		Converter:   func(...string) managedfields.TypeConverter { return managedfields.NewDeducedTypeConverter() },
		Authorizer:  authorizerfactory.NewAlwaysAllowAuthorizer(),
		Equivalents: runtime.NewEquivalentResourceRegistry(),
	}.Install(handler.GoRestfulContainer, s.Registry)
	if err != nil {
		t.Fatal(err)
	}
	return routes.Groups, handler
}

func get(t *testing.T, handler http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

// describe is the groups in one line: versions in order, each with its number
// of resources.
func describe(groups []view.Group) string {
	var parts []string
	for _, g := range groups {
		for _, v := range g.Versions {
			parts = append(parts, fmt.Sprintf("%s:%d", v.GroupVersion, len(v.Resources)))
		}
	}
	return strings.Join(parts, " ")
}

func TestTwoViewsOfOneStorageServeTheirVersionsOfTheSameObjects(t *testing.T) {
	s := registrytest.Start(t, autoscaling.Kinds()...)
	s.Do(http.MethodPost, "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler,
		metadata: {name: a}, spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}}}`).Want(http.StatusCreated)

	whole, all := show(t, s, func(schema.GroupVersionKind) bool { return true })
	old, part := show(t, s, func(gvk schema.GroupVersionKind) bool { return gvk.Version == "v1" })
	if got := describe(whole); got != "autoscaling/v2:1 autoscaling/v1:1 autoscaling/v2beta2:1 autoscaling/v2beta1:1" {
		t.Errorf("the whole view shows %s", got)
	}
	if got := describe(old); got != "autoscaling/v1:1" {
		t.Errorf("the partial view shows %s", got)
	}
	if preferred := whole[0].APIGroup().PreferredVersion.GroupVersion; preferred != "autoscaling/v2" {
		t.Errorf("%s is preferred", preferred)
	}
	for _, test := range []struct {
		handler http.Handler
		version string
		code    int
	}{{all, "v1", http.StatusOK}, {all, "v2", http.StatusOK}, {part, "v1", http.StatusOK}, {part, "v2", http.StatusNotFound}} {
		code, body := get(t, test.handler, "/apis/autoscaling/"+test.version+"/namespaces/default/horizontalpodautoscalers/a")
		if code != test.code || code == http.StatusOK && !strings.Contains(body, `"apiVersion":"autoscaling/`+test.version+`"`) {
			t.Errorf("%s: %d %s", test.version, code, body)
		}
	}
}

func TestAKindWithoutAServedVersionIsNotServed(t *testing.T) {
	s := registrytest.Start(t, slices.Concat(core.Kinds(), policy.Kinds())...)
	groups, handler := show(t, s, func(gvk schema.GroupVersionKind) bool { return gvk.Kind != "Secret" && gvk.Group == "" })
	if len(groups) != 1 || groups[0].Name != "" {
		t.Fatalf("the groups are %s", describe(groups))
	}
	for _, r := range groups[0].Versions[0].Resources {
		if r.Resource == "secrets" {
			t.Error("discovery shows secrets")
		}
	}
	if code, _ := get(t, handler, "/api/v1/namespaces/default/secrets"); code != http.StatusNotFound {
		t.Errorf("secrets are answered with %d", code)
	}
	if code, _ := get(t, handler, "/api/v1/namespaces/default/configmaps"); code != http.StatusOK {
		t.Errorf("configmaps are answered with %d", code)
	}
	if code, _ := get(t, handler, "/apis/events.k8s.io/v1/namespaces/default/events"); code != http.StatusNotFound {
		t.Errorf("the other group of events is answered with %d", code)
	}
}

func TestAnActionTakesAndNamesTheVersionsOfItsBodyThatAreServed(t *testing.T) {
	s := registrytest.Start(t, slices.Concat(core.Kinds(), policy.Kinds())...)
	const path = "/api/v1/namespaces/default/pods/missing/eviction"
	for _, test := range []struct {
		rule  string
		shown func(gvk schema.GroupVersionKind) bool
		named string
		codes map[string]int
	}{
		{"both", func(schema.GroupVersionKind) bool { return true }, "v1", map[string]int{"v1": http.StatusNotFound, "v1beta1": http.StatusNotFound}},
		{"the older one", func(gvk schema.GroupVersionKind) bool { return gvk.Kind != "Eviction" || gvk.Version != "v1" }, "v1beta1", map[string]int{"v1": http.StatusBadRequest, "v1beta1": http.StatusNotFound}},
		{"none", func(gvk schema.GroupVersionKind) bool { return gvk.Kind != "Eviction" }, "", nil},
	} {
		groups, handler := show(t, s, test.shown)
		named := ""
		for _, r := range groups[0].Versions[0].Resources {
			for _, sub := range r.Subresources {
				if sub.Subresource == "eviction" {
					named = sub.ResponseKind.Version
				}
			}
		}
		if named != test.named {
			t.Errorf("%s: discovery names %q, want %q", test.rule, named, test.named)
		}
		for version, code := range test.codes {
			w := httptest.NewRecorder()
			body := strings.NewReader(`{"apiVersion":"policy/` + version + `","kind":"Eviction"}`)
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, body)
			r.Header.Set("Content-Type", "application/json")
			handler.ServeHTTP(w, r)
			if w.Code != code {
				t.Errorf("%s: policy/%s: %d %s, want %d", test.rule, version, w.Code, w.Body, code)
			}
		}
	}
}

func TestDiscoveryHasTheVerbsOfAResource(t *testing.T) {
	s := registrytest.Start(t, slices.Concat(core.Kinds(), policy.Kinds())...)
	groups, _ := show(t, s, func(schema.GroupVersionKind) bool { return true })
	for _, r := range groups[0].Versions[0].Resources {
		if r.Resource != "pods" {
			continue
		}
		got := fmt.Sprintf("%s %s %v %v %s %v", r.SingularResource, r.ResponseKind.Kind, r.ShortNames, r.Categories, r.Scope, r.Verbs)
		if got != "pod Pod [po] [all] Namespaced [create delete deletecollection get list patch update watch]" {
			t.Errorf("pods are %s", got)
		}
		var subresources []string
		for _, sub := range r.Subresources {
			subresources = append(subresources, fmt.Sprintf("%s:%s%v", sub.Subresource, sub.ResponseKind.Kind, sub.Verbs))
		}
		if got := strings.Join(subresources, " "); got != "attach:PodAttachOptions[create get] binding:Binding[create] ephemeralcontainers:Pod[get patch update] eviction:Eviction[create] exec:PodExecOptions[create get] "+
			"log:Pod[get] portforward:PodPortForwardOptions[create get] proxy:PodProxyOptions[create delete get patch update] resize:Pod[get patch update] status:Pod[get patch update]" {
			t.Errorf("their subresources are %s", got)
		}
		return
	}
	t.Error("there are no pods")
}
