package alias

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// both are the versions of discovery of releases 1.30 to 1.32.
var both = Discovery{V2Beta1: true, V2: true}

// served is a response, and how a handler writes it.
type served struct {
	accept, contentType, body string
	status, size              int
}

// filtered returns the response to a request with an Accept header, which the
// handler writes in pieces.
func filtered(t *testing.T, s served) (contentType, body string) {
	t.Helper()
	h := Filter(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", s.contentType)
		w.WriteHeader(s.status)
		for rest := s.body; rest != ""; {
			n := min(s.size, len(rest))
			if written, err := io.WriteString(w, rest[:n]); err != nil || written != n {
				t.Errorf("Write returned %d, %v", written, err)
			}
			rest = rest[n:]
		}
	}), "corp.example", both)
	r := httptest.NewRequest(http.MethodGet, "/apis", nil)
	r.Header.Set("Accept", s.accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Header().Get("Content-Type"), w.Body.String()
}

func TestTheResponseHasTheSpellingOfTheRequest(t *testing.T) {
	const (
		table     = `{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[{"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1"}}]}`
		quoted    = `{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[{"object":{"annotations":{"a":"{\"apiVersion\":\"meta.k8s.io/v1\"}"}}}]}`
		discovery = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{}}`
		typeOfV2  = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	)
	for _, tc := range []struct{ rule, accept, contentType, body, wantType, wantBody string }{
		{
			"a table in the group domain's spelling", "application/json;as=Table;v=v1;g=meta.corp.example", "application/json", table,
			"application/json", strings.ReplaceAll(table, "meta.k8s.io", "meta.corp.example"),
		},
		{
			"text in an annotation stays", "application/json;as=Table;v=v1;g=meta.svc.dev", "application/json", quoted,
			"application/json", strings.Replace(quoted, "meta.k8s.io", "meta.svc.dev", 1),
		},
		{
			"Kubernetes' spelling stays", "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json", table, "application/json", table,
		},
		{
			"with both spellings the response has Kubernetes'", "application/json;as=Table;v=v1;g=meta.svc.dev,application/json;as=Table;v=v1;g=meta.k8s.io",
			"application/json", table, "application/json", table,
		},
		{
			"an indented table", "application/json;as=Table;v=v1;g=meta.svc.dev", "application/json", "{\n  \"apiVersion\": \"meta.k8s.io/v1\"\n}",
			"application/json", "{\n  \"apiVersion\": \"meta.svc.dev/v1\"\n}",
		},
		{
			"a table in YAML", "application/yaml;as=Table;v=v1;g=meta.svc.dev", "application/yaml", "apiVersion: meta.k8s.io/v1\nkind: Table\n",
			"application/yaml", "apiVersion: meta.svc.dev/v1\nkind: Table\n",
		},
		{
			"aggregated discovery", "application/json;g=apidiscovery.svc.dev;v=v2;as=APIGroupDiscoveryList", typeOfV2, discovery,
			"application/json;g=apidiscovery.svc.dev;v=v2;as=APIGroupDiscoveryList", strings.Replace(discovery, "k8s.io", "svc.dev", 1),
		},
		{
			"aggregated discovery v2beta1", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList", typeOfV2, discovery,
			"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList", strings.Replace(discovery, "v2", "v2beta1", 1),
		},
		{
			"aggregated discovery v2beta1 in svc's spelling", "application/json;g=apidiscovery.svc.dev;v=v2beta1;as=APIGroupDiscoveryList", typeOfV2, discovery,
			"application/json;g=apidiscovery.svc.dev;v=v2beta1;as=APIGroupDiscoveryList", strings.Replace(discovery, "k8s.io/v2", "svc.dev/v2beta1", 1),
		},
		{
			"v2 goes before v2beta1", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
			typeOfV2, discovery, typeOfV2, discovery,
		},
		{
			"metadata in protobuf", "application/vnd.svc.protobuf;as=PartialObjectMetadata;g=meta.svc.dev;v=v1", kubeProtobuf, envelopeOf("meta.k8s.io/v1"),
			svcProtobuf, envelopeOf("meta.svc.dev/v1"),
		},
		{
			"discovery in protobuf", kubeProtobuf + ";g=apidiscovery.svc.dev;v=v2beta1;as=APIGroupDiscoveryList", kubeProtobuf, envelopeOf("apidiscovery.k8s.io/v2"),
			kubeProtobuf, envelopeOf("apidiscovery.svc.dev/v2beta1"),
		},
		{
			"an error in protobuf stays", kubeProtobuf + ";as=PartialObjectMetadata;g=meta.svc.dev;v=v1", kubeProtobuf, envelopeOf("v1"), kubeProtobuf, envelopeOf("v1"),
		},
		{
			"a body that breaks off stays", kubeProtobuf + ";as=PartialObjectMetadata;g=meta.svc.dev;v=v1", kubeProtobuf, envelopeOf("meta.k8s.io/v1")[:12],
			kubeProtobuf, envelopeOf("meta.k8s.io/v1")[:12],
		},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			for _, size := range []int{1, 13, 1 << 20} {
				gotType, gotBody := filtered(t, served{accept: tc.accept, contentType: tc.contentType, body: tc.body, status: http.StatusOK, size: size})
				if gotType != tc.wantType || gotBody != tc.wantBody {
					t.Errorf("in pieces of %d bytes: %s %s\nwant %s %s", size, gotType, gotBody, tc.wantType, tc.wantBody)
				}
			}
		})
	}
}

// envelopeOf returns an object in protobuf, of a kind whose name is long.
func envelopeOf(apiVersion string) string {
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: strings.Repeat("Kind", 29)}, Raw: []byte("meta.k8s.io/v1")}
	body, err := unknown.Marshal()
	if err != nil {
		panic(err)
	}
	return magic + string(body)
}

func TestErrorsNameBothMediaTypes(t *testing.T) {
	const list = "accepted: application/json, application/vnd.kubernetes.protobuf"
	for body, want := range map[string]string{
		list:                                     list + ", application/vnd.svc.protobuf",
		list + ";stream=watch, application/yaml": list + ";stream=watch, application/vnd.svc.protobuf;stream=watch, application/yaml",
		"accepted: application/json":             "accepted: application/json",
	} {
		for _, status := range []int{http.StatusNotAcceptable, http.StatusUnsupportedMediaType} {
			if _, got := filtered(t, served{accept: "text/html", contentType: "application/json", body: body, status: status, size: 5}); got != want {
				t.Errorf("%d: %s, want %s", status, got, want)
			}
		}
	}
}

func TestSchemaExtensionsAreEchoedAsTheyWereWritten(t *testing.T) {
	const schema = `{"properties":{"x-svc-map-type":{"x-svc-list-type":"set","x-kubernetes-int-or-string":true}},"x-svc-map-type":"atomic","note":"x-kubernetes-list-type"}`
	const stored = `{"properties":{"x-svc-map-type":{"x-kubernetes-list-type":"set","x-kubernetes-int-or-string":true}},"x-kubernetes-map-type":"atomic","note":"x-kubernetes-list-type"}`
	for _, tc := range []struct {
		rule, body, want string
		status           int
	}{
		{rule: "an object", body: stored, want: schema, status: http.StatusCreated},
		{rule: "an error", body: `{"message":"x-kubernetes-list-type: x-kubernetes-int-or-string"}`, want: `{"message":"x-svc-list-type: x-kubernetes-int-or-string"}`, status: 422},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			h := Filter(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if got, err := io.ReadAll(r.Body); err != nil || string(got) != stored {
					t.Errorf("the handler reads %s, %v", got, err)
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			}), kubeDomain, both)
			r := httptest.NewRequest(http.MethodPost, crds, strings.NewReader(schema))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if got := w.Body.String(); got != tc.want {
				t.Errorf("body = %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestTheReleaseDecidesWhichVersionOfDiscoveryIsAsked(t *testing.T) {
	typeOf := func(version string) string {
		return "application/json;g=apidiscovery.k8s.io;v=" + version + ";as=APIGroupDiscoveryList"
	}
	const table = ",application/json;as=Table;v=v2;g=meta.k8s.io"
	v2, beta := typeOf("v2"), typeOf("v2beta1")
	for _, tc := range []struct {
		rule         string
		served       Discovery
		accept, want string // the library serves v2 and refuses v2beta1
		version      string // of the response, if the library serves v2
	}{
		{"no release, v2", Discovery{}, v2 + ",application/json", beta + ",application/json", ""},
		{"no release, v2beta1", Discovery{}, beta, beta, ""},
		{"v2beta1 alone, v2 only", Discovery{V2Beta1: true}, v2 + ",application/json", beta + ",application/json", ""},
		{"v2beta1 alone, both", Discovery{V2Beta1: true}, v2 + "," + beta + ",application/json", beta + "," + v2 + ",application/json", "v2beta1"},
		{"v2beta1 alone, other types stay", Discovery{V2Beta1: true}, beta + table, v2 + table, "v2beta1"},
		{"both, v2beta1", both, beta, v2, "v2beta1"},
		{"both, both", both, beta + "," + v2, beta + "," + v2, "v2"},
		{"v2 alone, v2beta1", Discovery{V2: true}, beta, beta, ""},
		{"v2 alone, both", Discovery{V2: true}, v2 + "," + beta, v2 + "," + beta, "v2"},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			h := Filter(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if got := r.Header.Get("Accept"); got != tc.want {
					t.Errorf("Accept: %s\nwant %s", got, tc.want)
				}
				w.Header().Set("Content-Type", v2)
				_, _ = io.WriteString(w, `{"apiVersion":"apidiscovery.k8s.io/v2"}`)
			}), kubeDomain, tc.served)
			r := httptest.NewRequest(http.MethodGet, "/apis", nil)
			r.Header.Set("Accept", tc.accept)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if tc.version == "" {
				return
			}
			if got, want := w.Body.String(), `{"apiVersion":"apidiscovery.k8s.io/`+tc.version+`"}`; got != want || w.Header().Get("Content-Type") != typeOf(tc.version) {
				t.Errorf("%s: %s, want %s", w.Header().Get("Content-Type"), got, want)
			}
		})
	}
}
