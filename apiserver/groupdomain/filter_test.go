package groupdomain

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	protobufserializer "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/apis"
)

// serve passes a request through the filter. The handler gets the request, and what was
// read of its body; it answers with a body in JSON.
func serve(t *testing.T, req *http.Request, status int, answer string) (w *httptest.ResponseRecorder, got *http.Request, body string, err error) {
	t.Helper()
	return serveAs(t, req, status, runtime.ContentTypeJSON, answer)
}

// serveAs is serve with an answer of a content type.
func serveAs(t *testing.T, req *http.Request, status int, contentType, answer string) (w *httptest.ResponseRecorder, got *http.Request, body string, err error) {
	t.Helper()
	handler := newFilter(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		var read []byte
		read, err = io.ReadAll(r.Body)
		body = string(read)
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	})
	w = httptest.NewRecorder()
	handler.ServeHTTP(w, req)
	return w, got, body, err
}

// newFilter returns the filter before a handler.
func newFilter(t *testing.T, next http.HandlerFunc) http.Handler {
	t.Helper()
	scheme, err := apis.NewScheme(apis.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	return Filter(next, Config{
		Names: newNames(t), FleetName: "default", Scheme: scheme, MaxBody: 1000, Compress: true, Proxied: sets.New("proxy"),
		Kinds: map[schema.GroupVersionResource]schema.GroupVersionKind{
			{Version: "v1", Resource: "configmaps"}: {Version: "v1", Kind: "ConfigMap"},
			{Version: "v1", Resource: "events"}:     {Version: "v1", Kind: "Event"},
			{Version: "v1", Resource: "pods"}:       {Version: "v1", Kind: "Pod"},
		},
	})
}

func TestBodiesOfRequestsAreReadInStoredNames(t *testing.T) {
	const path = "/apis/core.svc.dev/v1/namespaces/n/configmaps"
	owner := `{"apiVersion":"core.svc.dev/v1","kind":"ConfigMap","metadata":{"ownerReferences":[{"apiVersion":"apps.svc.dev/v1"}]}}`
	stored := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"ownerReferences":[{"apiVersion":"apps/v1"}]}}`
	for name, test := range map[string]struct{ contentType, body, want string }{
		"json":           {"application/json", owner, stored},
		"no media type":  {"", owner, stored},
		"apply in JSON":  {"application/apply-patch+yaml", owner, stored},
		"merge patch":    {"application/merge-patch+json", `{"metadata":{"ownerReferences":[{"apiVersion":"example.com/v1"}]}}`, `{"metadata":{"ownerReferences":[{"apiVersion":"example.com.host.svc.dev/v1"}]}}`},
		"yaml":           {"application/yaml", "# c\napiVersion: core.svc.dev/v1\nkind: ConfigMap\n", "# c\napiVersion: v1\nkind: ConfigMap\n"},
		"repeated in it": {"application/yaml", "kind: ConfigMap\na: 1\na: 2\n", "kind: ConfigMap\na: 1\na: 2\n"},
		"json patch": {
			"application/json-patch+json", `[{"op":"add","path":"/metadata/ownerReferences/-","value":{"apiVersion":"apps.svc.dev/v1"}}]`,
			`[{"op":"add","path":"/metadata/ownerReferences/-","value":{"apiVersion":"apps/v1"}}]`,
		},
		"options of a deletion": {"application/json", `{"apiVersion":"v1","kind":"DeleteOptions"}`, `{"apiVersion":"v1","kind":"DeleteOptions"}`},
		"no JSON":               {"application/json", `{"apiVersion":`, `{"apiVersion":`},
		"too long":              {"application/json", owner + strings.Repeat(" ", 2000), owner + strings.Repeat(" ", 2000)},
	} {
		req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(test.body))
		req.Header.Set("Content-Type", test.contentType)
		_, got, body, err := serve(t, req, http.StatusOK, "{}")
		if err != nil || body != test.want || got.URL.Path != "/api/v1/namespaces/n/configmaps" {
			t.Errorf("%s: read %q (%v) at %s, want %q", name, body, err, got.URL.Path, test.want)
		}
	}
}

func TestCustomResourcesMayHaveAGroupThatBeginsAsACommonOne(t *testing.T) {
	for _, group := range []string{"meta.example.com", "apidiscovery.example.com", "meta.k8s.io.example.com", "metadata.example.com"} {
		stored := `{"apiVersion":"` + group + `/v1","kind":"Widget","metadata":{"name":"a"}}`
		public := `{"apiVersion":"` + group + `.svc.dev/v1","kind":"Widget","metadata":{"name":"a"}}`
		path := "/apis/" + group + ".svc.dev/v1/namespaces/n/widgets"
		w, _, body, err := serve(t, httptest.NewRequest(http.MethodPost, path, strings.NewReader(public)), http.StatusCreated, stored)
		if err != nil || body != stored || w.Body.String() != public {
			t.Errorf("%s: read %s (%v), answered with %s", group, body, err, w.Body)
		}
		notFound := `{"kind":"Status","apiVersion":"v1","message":"widgets.` + group + ` \"a\" not found","details":{"name":"a","group":"` + group + `","kind":"widgets"}}`
		w, _, _, _ = serve(t, httptest.NewRequest(http.MethodGet, path+"/a", nil), http.StatusNotFound, notFound)
		if want := "widgets." + group + `.svc.dev \"a\" not found`; !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %s, want %s in it", group, w.Body, want)
		}
	}
}

func TestABodyOfTheHostsAPIIsRefusedByTheNamesOfTheDomain(t *testing.T) {
	req := httptest.NewRequest(http.MethodPost, "/apis/core.svc.dev/v1/namespaces/n/configmaps", strings.NewReader(`{"apiVersion":"v1","kind":"ConfigMap"}`))
	_, _, _, err := serve(t, req, http.StatusOK, "{}")
	if want := "the API version in the data (v1) does not match the expected API version (core.svc.dev/v1)"; err == nil || err.Error() != want {
		t.Errorf("read with %v, want %s", err, want)
	}
}

func TestFieldSelectorsAreTranslated(t *testing.T) {
	req := httptest.NewRequest(http.MethodGet, "/apis/core.svc.dev/v1/events?fieldSelector=involvedObject.apiVersion%3Dapps.svc.dev%2Fv1,metadata.name%3Da", nil)
	_, got, _, _ := serve(t, req, http.StatusOK, "{}")
	if selector := got.URL.Query().Get("fieldSelector"); selector != "involvedObject.apiVersion=apps/v1,metadata.name=a" {
		t.Errorf("selector %q", selector)
	}
}

func TestErrorsSayTheDomainsNames(t *testing.T) {
	for stored, want := range map[string]string{
		`{"kind":"Status","message":"configmaps \"a\" not found","details":{"name":"a","kind":"configmaps"}}`:                                      `configmaps.core.svc.dev \"a\" not found`,
		`{"kind":"Status","message":"cannot list resource \"configmaps\" in API group \"\" in the namespace"}`:                                     `in API group \"core.svc.dev\"`,
		`{"kind":"Status","message":"forbidden: cannot get path \"/api/v1/namespaces/n/configmaps/a\""}`:                                           `path \"/apis/core.svc.dev/v1/namespaces/n/configmaps/a\"`,
		`{"kind":"Status","message":"namespaces \"n\" not found","details":{"name":"n","kind":"namespaces"}}`:                                      `"message":"namespaces \"n\" not found"`,
		`{"kind":"Status","message":"ListOptions.meta.k8s.io \"\" is invalid","details":{"group":"meta.k8s.io","kind":"ListOptions","causes":[]}}`: `ListOptions.meta.k8s.io \"\" is invalid`,
	} {
		req := httptest.NewRequest(http.MethodGet, "/apis/core.svc.dev/v1/namespaces/n/configmaps/a", nil)
		if w, _, _, _ := serve(t, req, http.StatusNotFound, stored); !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s became %s, want %s in it", stored, w.Body, want)
		}
	}
}

func TestAnswersInYAMLSayTheDomainsNames(t *testing.T) {
	const path = "/apis/core.svc.dev/v1/namespaces/n/configmaps/a"
	for stored, want := range map[string]string{
		"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  ownerReferences:\n  - apiVersion: apps/v1\n": "apiVersion: core.svc.dev/v1\nkind: ConfigMap\nmetadata:\n  ownerReferences:\n    - apiVersion: apps.svc.dev/v1\n",
		"apiVersion: v1\nkind: ConfigMapList\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n":        "apiVersion: core.svc.dev/v1\nkind: ConfigMapList\nitems:\n  - apiVersion: core.svc.dev/v1\n    kind: ConfigMap\n",
	} {
		req := httptest.NewRequest(http.MethodGet, path, nil)
		if w, _, _, _ := serveAs(t, req, http.StatusOK, runtime.ContentTypeYAML, stored); w.Body.String() != want {
			t.Errorf("%s became\n%s\nwant %s", stored, w.Body, want)
		}
	}
}

func TestErrorsInYAMLAndProtobufSayTheDomainsNames(t *testing.T) {
	scheme, err := apis.NewScheme(apis.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	inProtobuf := protobufserializer.NewSerializer(scheme, scheme)
	notFound := apierrors.NewNotFound(schema.GroupResource{Group: "apps", Resource: "deployments"}, "a").Status()
	notFound.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	inYAML, err := yaml.Marshal(notFound)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := runtime.Encode(inProtobuf, &notFound)
	if err != nil {
		t.Fatal(err)
	}
	for contentType, answer := range map[string][]byte{runtime.ContentTypeYAML: inYAML, runtime.ContentTypeProtobuf: encoded} {
		req := httptest.NewRequest(http.MethodGet, "/apis/apps.svc.dev/v1/namespaces/n/deployments/a", nil)
		w, _, _, _ := serveAs(t, req, http.StatusNotFound, contentType, string(answer))
		var got metav1.Status
		if contentType == runtime.ContentTypeYAML {
			err = yaml.Unmarshal(w.Body.Bytes(), &got)
		} else {
			_, _, err = inProtobuf.Decode(w.Body.Bytes(), nil, &got)
		}
		want := `deployments.apps.svc.dev "a" not found`
		if err != nil || got.Message != want || got.Details.Group != "apps.svc.dev" || got.APIVersion != "v1" || got.Kind != "Status" || got.Code != http.StatusNotFound {
			t.Errorf("%s: %+v (%v), want %s", contentType, got, err, want)
		}
	}
}

func TestBodiesInProtobufAreReadInStoredNames(t *testing.T) {
	scheme, err := apis.NewScheme(apis.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	owners := func(apiVersion string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: "a", OwnerReferences: []metav1.OwnerReference{{APIVersion: apiVersion, Kind: "Deployment"}}}
	}
	configMap := func(owner string) runtime.Object { return &corev1.ConfigMap{ObjectMeta: owners(owner)} }
	binding := func(target string) runtime.Object {
		return &corev1.Binding{Target: corev1.ObjectReference{APIVersion: target, Kind: "Node", Name: "n"}}
	}
	for name, test := range map[string]struct {
		path, kind, version, storedVersion string
		sent, want                         runtime.Object
	}{
		"an object of the resource":    {"configmaps", "ConfigMap", "core.svc.dev/v1", "v1", configMap("apps.svc.dev/v1"), configMap("apps/v1")},
		"an owner of the host":         {"configmaps", "ConfigMap", "core.svc.dev/v1", "v1", configMap("apps/v1"), configMap("apps.host.svc.dev/v1")},
		"another kind than its object": {"pods/a/binding", "Binding", "core.svc.dev/v1", "v1", binding("core.svc.dev/v1"), binding("v1")},
		"options of a deletion":        {"configmaps", "DeleteOptions", "v1", "v1", &metav1.DeleteOptions{DryRun: []string{"All"}}, &metav1.DeleteOptions{DryRun: []string{"All"}}},
	} {
		body := protobufOf(t, test.sent, test.version, test.kind)
		req := httptest.NewRequest(http.MethodPost, "/apis/core.svc.dev/v1/namespaces/n/"+test.path, bytes.NewReader(body))
		req.Header.Set("Content-Type", runtime.ContentTypeProtobuf)
		_, _, read, err := serve(t, req, http.StatusOK, "{}")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, gvk, err := protobufserializer.NewSerializer(scheme, scheme).Decode([]byte(read), nil, emptyLike(test.want))
		if err != nil || gvk.GroupVersion().String() != test.storedVersion {
			t.Errorf("%s: read %v (%v)", name, gvk, err)
			continue
		}
		got.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		if diff := cmp.Diff(mustMarshal(t, test.want), mustMarshal(t, got)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	ofHost := protobufOf(t, configMap("v1"), "v1", "ConfigMap")
	req := httptest.NewRequest(http.MethodPost, "/apis/core.svc.dev/v1/namespaces/n/configmaps", bytes.NewReader(ofHost))
	req.Header.Set("Content-Type", runtime.ContentTypeProtobuf)
	if _, _, _, err := serve(t, req, http.StatusOK, "{}"); err == nil || !strings.Contains(err.Error(), "(v1) does not match the expected API version (core.svc.dev/v1)") {
		t.Errorf("a body of the host's API was read with %v", err)
	}
}

// protobufOf returns an object with an envelope that names its type.
func protobufOf(t *testing.T, obj runtime.Object, apiVersion, kind string) []byte {
	t.Helper()
	raw, err := obj.(interface{ Marshal() ([]byte, error) }).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	body, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(slices.Clone(magic), body...)
}

func TestWhatAnotherServerAnswersStaysAsItIs(t *testing.T) {
	const answer = `{"apiVersion":"v1","metadata":{"ownerReferences":[{"apiVersion":"apps/v1"}]}}`
	req := httptest.NewRequest(http.MethodPost, "/apis/core.svc.dev/v1/namespaces/n/services/s/proxy/a", strings.NewReader(answer))
	w, got, body, _ := serve(t, req, http.StatusOK, answer)
	if w.Body.String() != answer || body != answer || got.URL.Path != "/api/v1/namespaces/n/services/s/proxy/a" {
		t.Errorf("%s at %s was answered with %s", body, got.URL.Path, w.Body)
	}
}

func TestBelowTheFleetsOwnAddressAllStaysAsItIs(t *testing.T) {
	const answer = `{"apiVersion":"v1","kind":"ConfigMap"}`
	req := httptest.NewRequest(http.MethodPost, "/apis/fleet.svc.dev/v1/fleets/default/proxy/api/v1/namespaces/n/configmaps?a=b", strings.NewReader(answer))
	w, got, body, _ := serve(t, req, http.StatusOK, answer)
	if w.Body.String() != answer || body != answer || got.URL.String() != "/api/v1/namespaces/n/configmaps?a=b" || !UnderStoredNames(got.Context()) {
		t.Errorf("%s at %s was answered with %s", body, got.URL, w.Body)
	}
}

func TestReadsAreCompressedAfterTheyAreTranslated(t *testing.T) {
	const path = "/apis/core.svc.dev/v1/namespaces/n/configmaps"
	answer := `{"apiVersion":"v1","kind":"ConfigMapList","items":[]}`
	for query, compressed := range map[string]bool{"": true, "?watch=false": true, "?watch=1": false, "?watch": false} {
		req := httptest.NewRequest(http.MethodGet, path+query, nil)
		req.Header.Set("Accept-Encoding", "gzip")
		w, got, _, _ := serve(t, req, http.StatusOK, answer)
		if got.Header.Get("Accept-Encoding") != "" {
			t.Errorf("%q: the handler may compress, which cannot be translated", query)
		}
		body := io.Reader(w.Body)
		if found := w.Header().Get("Content-Encoding") == "gzip"; found != compressed {
			t.Errorf("%q: compressed: %v, want %v", query, found, compressed)
		} else if found {
			var err error
			if body, err = gzip.NewReader(w.Body); err != nil {
				t.Fatal(err)
			}
		}
		if text, err := io.ReadAll(body); err != nil || !strings.Contains(string(text), `"core.svc.dev/v1"`) {
			t.Errorf("%q: %s %v", query, text, err)
		}
	}
}
