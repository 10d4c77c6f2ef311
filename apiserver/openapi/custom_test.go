package openapi_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/emicklei/go-restful/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	apiextensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/utils/clock"

	"svc.dev/svc/apiserver/openapi"
)

// customDocuments are the documents of definitions that a test changes.
type customDocuments struct {
	t       *testing.T
	store   cache.Indexer
	handler http.Handler
}

func serveCustom(t *testing.T, crds ...*apiextensionsv1.CustomResourceDefinition) *customDocuments {
	return serveCustomWith(t, apiextensionsopenapi.GetOpenAPIDefinitions, crds...)
}

// serveCustomWith is serveCustom with other definitions for the document of version 2.
func serveCustomWith(t *testing.T, definitions common.GetOpenAPIDefinitions, crds ...*apiextensionsv1.CustomResourceDefinition) *customDocuments {
	c := &customDocuments{t: t, store: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})}
	c.set(crds...)
	to := mux.NewPathRecorderMux("test")
	docs := openapi.New("test", "v1", openapi.All(definitions), runtime.NewScheme, clock.RealClock{})
	docs.InstallWithCustomResources(restful.NewContainer(), to, apiextensionslisters.NewCustomResourceDefinitionLister(c.store))
	c.handler = to
	return c
}

func (c *customDocuments) set(crds ...*apiextensionsv1.CustomResourceDefinition) {
	c.t.Helper()
	for _, crd := range crds {
		if err := c.store.Update(crd); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *customDocuments) get(url string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, url, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, r)
	return w
}

func (c *customDocuments) decode(url string, to any) {
	c.t.Helper()
	w := c.get(url)
	if w.Code != http.StatusOK {
		c.t.Fatalf("GET %s: %d %s", url, w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), to); err != nil {
		c.t.Fatal(err)
	}
}

// url returns where the index says that a document is.
func (c *customDocuments) url(gv string) string {
	c.t.Helper()
	var index handler3.OpenAPIV3Discovery
	c.decode("/openapi/v3", &index)
	return index.Paths[gv].ServerRelativeURL
}

func definition(plural, kind, uid string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + ".example.com", UID: types.UID(uid), Generation: 1},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind, ListKind: kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				SelectableFields: []apiextensionsv1.SelectableField{{JSONPath: ".size"}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"size": {Type: "integer"}},
				}},
			}, {
				Name: "v0", Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
			{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue},
		}},
	}
}

const exampleV1 = "apis/example.com/v1"

func TestTheDocumentOfCustomResourcesIsThatOfTheLibrary(t *testing.T) {
	widget, gadget := definition("widgets", "Widget", "1"), definition("gadgets", "Gadget", "2")
	c := serveCustom(t, widget, gadget)
	var parts []*spec3.OpenAPI
	for _, crd := range []*apiextensionsv1.CustomResourceDefinition{gadget, widget} {
		part, err := builder.BuildOpenAPIV3(crd, "v1", builder.Options{IncludeSelectableFields: true})
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, part)
	}
	merged, err := builder.MergeSpecsV3(parts...)
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(merged)
	if err != nil {
		t.Fatal(err)
	}
	url := c.url(exampleV1)
	for range 2 { // built, and kept
		if got := c.get(url); got.Body.String() != string(want) || got.Header().Get("Cache-Control") != "public, immutable" {
			t.Errorf("got %d %v %s, want %s", got.Code, got.Header(), got.Body, want)
		}
	}
	protobuf, err := handler3.ToV3ProtoBinary(want)
	if err != nil {
		t.Fatal(err)
	}
	got := c.get(url, "Accept", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf")
	if got.Body.Len() != len(protobuf) || !strings.Contains(got.Header().Get("Content-Type"), "protobuf") {
		t.Errorf("protobuf: got %d bytes, %v; want %d", got.Body.Len(), got.Header(), len(protobuf))
	}
	if got := c.get(url, "Accept", "text/html"); got.Code != http.StatusNotAcceptable {
		t.Errorf("text/html: got %d", got.Code)
	}
}

func TestTheHashOfCustomResourcesIsThatOfTheirSpecification(t *testing.T) {
	c := serveCustom(t, definition("widgets", "Widget", "1"))
	first := c.url(exampleV1)
	recreated := definition("widgets", "Widget", "2")
	recreated.Generation = 7
	recreated.Status.StoredVersions = []string{"v1"}
	c.set(recreated)
	if again := c.url(exampleV1); again != first {
		t.Errorf("an equal definition has another hash: %s, %s", again, first)
	}
	if got := c.get(first, "If-None-Match", c.get(first).Header().Get("Etag")); got.Code != http.StatusNotModified {
		t.Errorf("an unchanged document: got %d", got.Code)
	}
	changed := recreated.DeepCopy()
	changed.Generation++
	changed.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["color"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
	c.set(changed)
	second := c.url(exampleV1)
	if second == first {
		t.Error("a changed definition has the same hash")
	}
	if got := c.get(first); got.Code != http.StatusMovedPermanently || got.Header().Get("Location") != second {
		t.Errorf("the old hash: got %d to %s, want %s", got.Code, got.Header().Get("Location"), second)
	}
	if got := c.get(second); !strings.Contains(got.Body.String(), `"color"`) {
		t.Errorf("the new document: %d %s", got.Code, got.Body)
	}
}

func TestDocumentsOfCustomResourcesAreCompressedForClientsThatAcceptIt(t *testing.T) {
	c := serveCustom(t, definition("widgets", "Widget", "1"))
	url := c.url(exampleV1)
	plain, compressed := c.get(url, "Accept-Encoding", "gzip;q=0"), c.get(url, "Accept-Encoding", "gzip")
	if plain.Header().Get("Content-Encoding") != "" || compressed.Header().Get("Content-Encoding") != "gzip" {
		t.Errorf("got headers %v and %v", plain.Header(), compressed.Header())
	}
	reader, err := gzip.NewReader(compressed.Body)
	if err != nil {
		t.Fatal(err)
	}
	if content, err := io.ReadAll(reader); err != nil || !bytes.Equal(content, plain.Body.Bytes()) {
		t.Errorf("got %v\n%s\nwant\n%s", err, content, plain.Body)
	}
}

func TestOnlyServedVersionsOfEstablishedDefinitionsHaveDocuments(t *testing.T) {
	widget := definition("widgets", "Widget", "1")
	c := serveCustom(t, widget)
	if url := c.url("apis/example.com/v0"); url != "" {
		t.Errorf("a version that is not served is at %s", url)
	}
	url := c.url(exampleV1)
	c.get(url)
	pending := widget.DeepCopy()
	pending.Status.Conditions = nil
	c.set(pending)
	if c.url(exampleV1) != "" {
		t.Error("a definition that is not established is in the index")
	}
	for _, path := range []string{url, "/openapi/v3/apis/other/v1"} {
		if got := c.get(path); got.Code != http.StatusNotFound {
			t.Errorf("%s: got %d", path, got.Code)
		}
	}
}

func TestTheVersion2DocumentOfCustomResourcesIsSentOnlyIfItHasChanged(t *testing.T) {
	widget := definition("widgets", "Widget", "1")
	c := serveCustom(t, widget)
	first := c.get("/openapi/v2")
	etag := first.Header().Get("Etag")
	if got := c.get("/openapi/v2", "If-None-Match", etag); got.Code != http.StatusNotModified {
		t.Errorf("unchanged: got %d", got.Code)
	}
	var doc spec.Swagger
	c.decode("/openapi/v2", &doc)
	if model := doc.Definitions["com.example.v1.Widget"]; !reflect.DeepEqual([]string(model.Properties["size"].Type), []string{"integer"}) {
		t.Errorf("the model: %v", model)
	}
	c.set(definition("gadgets", "Gadget", "2"))
	if got := c.get("/openapi/v2", "If-None-Match", etag); got.Code != http.StatusOK || !strings.Contains(got.Body.String(), "com.example.v1.Gadget") {
		t.Errorf("changed: got %d", got.Code)
	}
}

func TestVersion3DocumentsDoNotWaitForThatOfVersion2(t *testing.T) {
	building, release := make(chan struct{}), make(chan struct{})
	c := serveCustomWith(t, func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		close(building)
		<-release
		return apiextensionsopenapi.GetOpenAPIDefinitions(ref)
	}, definition("widgets", "Widget", "1"))
	built := make(chan int)
	go func() { built <- c.get("/openapi/v2").Code }()
	<-building
	read := make(chan struct{})
	go func() {
		defer close(read)
		c.get("/openapi/v3")
		c.get("/openapi/v3/" + exampleV1)
	}()
	select {
	case <-read:
	case <-time.After(30 * time.Second):
		t.Error("the version 3 documents wait for that of version 2")
	}
	close(release)
	if code := <-built; code != http.StatusOK {
		t.Errorf("version 2: got %d", code)
	}
}
