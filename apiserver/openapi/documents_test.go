package openapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/emicklei/go-restful/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/utils/clock"

	"svc.dev/svc/apis"
	"svc.dev/svc/apis/apps"
	definitions "svc.dev/svc/apis/openapi"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/inprocess"
	"svc.dev/svc/apiserver/openapi"
	"svc.dev/svc/apiserver/registry/registrytest"
	"svc.dev/svc/apiserver/view"
)

// all are all kinds as declarations.
func all() []resource.Declaration {
	var ds []resource.Declaration
	for _, k := range apis.Kinds() {
		ds = append(ds, declared{k})
	}
	return ds
}

type declared struct{ kind *resource.Kind }

func (d declared) Kind() *resource.Kind { return d.kind }

// served are documents behind a handler that count how often definitions are
// made, and routes.
type served struct {
	t            *testing.T
	docs         *openapi.Documents
	handler      http.Handler
	made, routes atomic.Int32
}

// counted are routes that count how often they are made.
type counted struct {
	openapi.Routes
	made *atomic.Int32
}

func (c counted) Whole(ws *restful.WebService) (*restful.WebService, error) {
	c.made.Add(1)
	return c.Routes.Whole(ws)
}

func serve(t *testing.T, version string, declarations ...resource.Declaration) *served {
	t.Helper()
	stack := registrytest.Start(t, declarations...)
	s := &served{t: t}
	s.docs = openapi.New("test", version, func(models ...string) common.GetOpenAPIDefinitions {
		return func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
			s.made.Add(1)
			return definitions.Definitions(models...)(ref)
		}
	}, func() *runtime.Scheme { return apis.NewExternalScheme(stack.Kinds) }, clock.RealClock{})
	handler := genericapiserver.NewAPIServerHandler("test", serializer.NewCodecFactory(stack.Scheme), inprocess.Chain, http.NotFoundHandler())
	routes, err := view.View{
		Scheme:      stack.Scheme,
		Versions:    func(k *resource.Kind) []schema.GroupVersionKind { return k.GVKs() },
		Converter:   s.docs.TypeConverter,
		Authorizer:  authorizerfactory.NewAlwaysAllowAuthorizer(),
		Equivalents: runtime.NewEquivalentResourceRegistry(),
	}.Install(handler.GoRestfulContainer, stack.Registry)
	if err != nil {
		t.Fatal(err)
	}
	s.docs.Install(handler.GoRestfulContainer, counted{routes, &s.routes}, handler.NonGoRestfulMux)
	s.handler = handler
	return s
}

// get reads a path; header is pairs of a key and a value.
func (s *served) get(path string, header ...string) *httptest.ResponseRecorder {
	s.t.Helper()
	req := httptest.NewRequestWithContext(s.t.Context(), http.MethodGet, path, nil)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, req)
	return w
}

// index is the version 3 index: URLs by path.
func (s *served) index() map[string]string {
	s.t.Helper()
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	s.decode(s.get("/openapi/v3"), &index)
	urls := map[string]string{}
	for path, entry := range index.Paths {
		urls[path] = entry.ServerRelativeURL
	}
	return urls
}

func (s *served) decode(w *httptest.ResponseRecorder, to any) {
	s.t.Helper()
	if w.Code != http.StatusOK {
		s.t.Fatalf("answered %d: %s", w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), to); err != nil {
		s.t.Fatalf("%v: %.200s", err, w.Body)
	}
}

// schemas are the schemas of a version 3 document.
func (s *served) schemas(url string) map[string]modelSchema {
	s.t.Helper()
	var doc struct {
		Components struct{ Schemas map[string]modelSchema }
	}
	s.decode(s.get(url), &doc)
	return doc.Components.Schemas
}

type modelSchema struct {
	Kinds []struct{ Group, Version, Kind string } `json:"x-kubernetes-group-version-kind"`
}

const appsDoc = "/openapi/v3/apis/apps/v1"

func TestNothingIsBuiltBeforeItsFirstRequest(t *testing.T) {
	s := serve(t, "1", apps.Kinds()...)
	converter := s.docs.TypeConverter("io.k8s.api.apps.v1.Deployment")
	if got := s.index(); got["apis/apps/v1"] == "" {
		t.Errorf("the index is %v", got)
	}
	if got := s.made.Load(); got != 0 {
		t.Fatalf("definitions were made %d times to install and to list", got)
	}
	for name, ask := range map[string]func(){
		"a document of version 3": func() { s.schemas(appsDoc) },
		"the document of version 2": func() {
			if w := s.get("/openapi/v2"); w.Code != http.StatusOK {
				t.Errorf("%d", w.Code)
			}
		},
		"a converter": func() {
			if _, err := converter.ObjectToTyped(&corev1.Pod{}); err == nil {
				t.Error("a converter of deployments takes a pod")
			}
		},
	} {
		before := s.made.Load()
		ask()
		once := s.made.Load()
		if once == before {
			t.Errorf("%s was built before its first request", name)
		}
		ask()
		if s.made.Load() != once {
			t.Errorf("%s was built twice", name)
		}
	}
}

func TestTheIndexMakesNoRoutes(t *testing.T) {
	s := serve(t, "1", apps.Kinds()...)
	if urls := s.index(); urls["apis/apps/v1"] == "" || s.routes.Load() != 0 {
		t.Errorf("the index has %v, and routes were made %d times", urls, s.routes.Load())
	}
	if s.get(appsDoc); s.routes.Load() != 1 {
		t.Errorf("routes were made %d times for a document", s.routes.Load())
	}
}

func TestTheHashInTheIndexDependsOnWhatTheDocumentIsMadeOf(t *testing.T) {
	hash := func(version string, declarations ...resource.Declaration) string {
		u, err := url.Parse(serve(t, version, declarations...).index()["apis/apps/v1"])
		if err != nil {
			t.Fatal(err)
		}
		if u.Path != appsDoc || strings.Trim(u.Query().Get("hash"), "0123456789abcdef") != "" {
			t.Errorf("the URL is %s", u)
		}
		return u.Query().Get("hash")
	}
	kinds := apps.Kinds()
	first := hash("1+a b", kinds...)
	if again := hash("1+a b", kinds...); first == "" || again != first {
		t.Errorf("the same documents are %q and %q", first, again)
	}
	if hash("2", kinds...) == first {
		t.Error("another version has the same hash")
	}
	if hash("1+a b", kinds[1:]...) == first {
		t.Error("other routes have the same hash")
	}
	owners := map[string]string{}
	for gv, u := range serve(t, "1", all()...).index() {
		_, hash, _ := strings.Cut(u, "?hash=")
		if other := owners[hash]; other != "" {
			t.Errorf("%s and %s have the same hash", gv, other)
		}
		owners[hash] = gv
	}
	if hash("1+a b", append(apps.Kinds(), all()[0])...) != first {
		t.Error("a kind of another group changes the hash")
	}
}

func TestADocumentIsFetched(t *testing.T) {
	s := serve(t, "1", apps.Kinds()...)
	current := s.index()["apis/apps/v1"]
	const protobuf3 = "application/com.github.proto-openapi.spec.v3"
	for _, test := range []struct {
		rule, url, accept string
		code              int
		contentType       string
		immutable         bool
	}{
		{"by its hash, without a redirect, to be kept", current, "", http.StatusOK, "application/json", true},
		{"without a hash, not to be kept", appsDoc, "", http.StatusOK, "application/json", false},
		{"by an old hash, from where the new one is", appsDoc + "?hash=old", "", http.StatusMovedPermanently, "", false},
		{"as protobuf", current, protobuf3 + "@v1.0+protobuf", http.StatusOK, protobuf3 + ".v1.0+protobuf", true},
		{"as protobuf by the later name", current, protobuf3 + ".v1.0+protobuf", http.StatusOK, protobuf3 + ".v1.0+protobuf", true},
		{"as nothing else", current, "image/png", http.StatusNotAcceptable, "", true},
		{"unless there is no such version", "/openapi/v3/apis/apps/v9", "", http.StatusNotFound, "", false},
		{"unless the path is empty", "/openapi/v3/", "", http.StatusNotFound, "", false},
	} {
		t.Run(test.rule, func(t *testing.T) {
			w := s.get(test.url, "Accept", test.accept)
			if w.Code != test.code {
				t.Fatalf("answered %d: %.300s", w.Code, w.Body)
			}
			if got := w.Header().Get("Content-Type"); test.contentType != "" && got != test.contentType {
				t.Errorf("the type is %s", got)
			}
			if got := strings.Contains(w.Header().Get("Cache-Control"), "immutable"); got != test.immutable {
				t.Errorf("Cache-Control is %q", w.Header().Get("Cache-Control"))
			}
			if test.code == http.StatusMovedPermanently {
				if next := s.get(w.Header().Get("Location")); next.Code != http.StatusOK {
					t.Errorf("redirected to %s, which answers %d", w.Header().Get("Location"), next.Code)
				}
			}
		})
	}
	etag := s.get(appsDoc).Header().Get("Etag")
	if w := s.get(appsDoc, "If-None-Match", etag); etag == "" || w.Code != http.StatusNotModified {
		t.Errorf("with its own etag %s: %d", etag, w.Code)
	}
}

func TestTheVersion2DocumentIsFetchedAsJSONAndProtobuf(t *testing.T) {
	s := serve(t, "1", apps.Kinds()...)
	var doc struct{ Definitions map[string]modelSchema }
	s.decode(s.get("/openapi/v2"), &doc)
	if got := doc.Definitions["io.k8s.api.apps.v1.Deployment"]; len(got.Kinds) != 1 || got.Kinds[0].Kind != "Deployment" {
		t.Errorf("Deployment is %v", got)
	}
	w := s.get("/openapi/v2", "Accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
	if w.Code != http.StatusOK || !strings.Contains(w.Header().Get("Content-Type"), "protobuf") {
		t.Errorf("answered %d %s", w.Code, w.Header().Get("Content-Type"))
	}
}

func TestEveryServedKindHasASchemaThatNamesIt(t *testing.T) {
	s := serve(t, "1", all()...)
	index := s.index()
	for _, k := range apis.Kinds() {
		for _, gvk := range k.GVKs() {
			path := "apis/" + gvk.GroupVersion().String()
			if gvk.Group == "" {
				path = "api/" + gvk.Version
			}
			url := index[path]
			if url == "" {
				t.Errorf("%s: the index has no %s", gvk, path)
				continue
			}
			found := 0
			for _, model := range s.schemas(url) {
				if len(model.Kinds) == 1 && model.Kinds[0].Group == gvk.Group && model.Kinds[0].Version == gvk.Version && model.Kinds[0].Kind == gvk.Kind {
					found++
				}
			}
			if found != 1 {
				t.Errorf("%s: %d schemas name it", gvk, found)
			}
		}
	}
}

func TestADocumentNamesNoInternalKindsAndNoneOfOtherGroups(t *testing.T) {
	s := serve(t, "1", all()...)
	shared := 0
	for path, url := range s.index() {
		parts := strings.Split(path, "/")
		own := schema.GroupVersion{Version: parts[len(parts)-1]}
		if parts[0] == "apis" {
			own.Group = parts[1]
		}
		for name, model := range s.schemas(url) {
			for _, kind := range model.Kinds {
				gv := schema.GroupVersion{Group: kind.Group, Version: kind.Version}
				// Meta types belong to every version, and to v1; a scale is always autoscaling's.
				if gv != own && gv != (schema.GroupVersion{Version: "v1"}) && kind.Kind != "Scale" && !slices.Contains([]string{"Eviction", "TokenRequest"}, kind.Kind) {
					t.Errorf("%s: %s is %s %s", path, name, gv, kind.Kind)
				}
			}
			if len(model.Kinds) == 2 {
				shared++
			}
		}
	}
	if shared == 0 {
		t.Error("no document has a type that all groups share")
	}
}

func TestKeysOfListsReachServerSideApply(t *testing.T) {
	s := registrytest.Start(t, apps.Kinds()...)
	const path = "/apis/apps/v1/namespaces/default/deployments/a"
	apply := func(manager, ports string) *registrytest.Answer {
		return s.Patch("apply", path+"?fieldManager="+manager, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a},
			spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i, ports: [`+ports+`]}]}}}}`)
	}
	apply("ann", `{containerPort: 80, protocol: TCP, name: web}`).Want(http.StatusCreated)
	got := apply("bob", `{containerPort: 443, protocol: TCP, name: tls}`).Want(http.StatusOK)
	ports := func(answer *registrytest.Answer) string {
		var names []string
		containers, _ := answer.Field("spec", "template", "spec", "containers").([]any)
		for _, c := range containers {
			list, _ := c.(map[string]any)["ports"].([]any)
			for _, p := range list {
				names = append(names, p.(map[string]any)["name"].(string))
			}
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	if ports(got) != "tls web" {
		t.Errorf("the ports are %q: one manager's port took the other's place", ports(got))
	}
	if got := apply("ann", ``).Want(http.StatusOK); ports(got) != "tls" {
		t.Errorf("after the first gave its port up: %q", ports(got))
	}
	apply("bob", `{containerPort: 80, protocol: TCP, name: x}, {containerPort: 80, protocol: TCP, name: y}`).Want(http.StatusBadRequest, "duplicate")
}
