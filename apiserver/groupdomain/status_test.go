package groupdomain

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"svc.dev/svc/apis"
)

const proxyPath = "/apis/core.svc.dev/v1/namespaces/n/services/s/proxy/a"

// notAStatus are bodies of errors, by content type, that are not a Status, or not one
// that can be read.
var notAStatus = map[string][]string{
	runtime.ContentTypeJSON: {
		`{"error":"no such item"}`, `{ "message" : "a", "code": 1.0 }`, `{"Kind":"Status","apiVersion":"v1"}`, `{"kind":"Status","apiVersion":"example.com/v1","x":1}`,
		`{"kind":"Status","apiVersion":"v1","code":"none"}`, "{\"kind\":\"Status\",\"apiVersion\":\"v1\"}\n{\"error\":1}\n", `["a", 1]`, `"a"`, "null", " 1 ", "", `{"error":`,
		`{"kind":"Status","details":{},"details":{"kind":"pods"}}`, `{"kind":"Status","details":null,"details":{"kind":"pods"}}`,
	},
	runtime.ContentTypeYAML:     {"error: no such item # here\n", "- a\n- 1\n", "a: [\n", ""},
	runtime.ContentTypeProtobuf: {"k8s\x00\x0a", "none"},
	"text/plain":                {`{"kind":"Status","apiVersion":"v1","message":"in API group \"\""}`},
}

func TestErrorsThatAreNotAStatusStayByteForByte(t *testing.T) {
	for contentType, bodies := range notAStatus {
		for _, body := range bodies {
			for _, path := range []string{proxyPath, "/apis/core.svc.dev/v1/namespaces/n/configmaps/a"} {
				w, _, _, _ := serveAs(t, httptest.NewRequest(http.MethodGet, path, nil), http.StatusNotFound, contentType, body)
				if w.Body.String() != body {
					t.Errorf("%s at %s: %q became %q", contentType, path, body, w.Body)
				}
			}
		}
	}
}

func TestAnObjectInProtobufThatIsNotAStatusStaysByteForByte(t *testing.T) {
	// An unknown field, which decoding drops, ends the object.
	body := protobufOf(t, &corev1.ConfigMap{Data: map[string]string{"a": "b"}}, "v1", "ConfigMap")
	body = append(body, 0x7a, 0x01, 'x')
	w, _, _, _ := serveAs(t, httptest.NewRequest(http.MethodGet, proxyPath, nil), http.StatusNotFound, runtime.ContentTypeProtobuf, string(body))
	if !bytes.Equal(w.Body.Bytes(), body) {
		t.Errorf("%q became %q", body, w.Body)
	}
}

// TestErrorsOfBackendsStayWithTheirLength has a backend that a service's proxy, as the
// API server has it, forwards to.
func TestErrorsOfBackendsStayWithTheirLength(t *testing.T) {
	status := `{"kind":"Status","apiVersion":"v1","message":"deployments.apps \"a\" not found","details":{"group":"apps","kind":"deployments"},"code":404}`
	for name, test := range map[string]struct {
		body   string
		length bool // the backend says how long the body is
	}{
		"an object":           {`{"error":"no such item"}`, true},
		"an object in pieces": {`{"error":"no such item"}`, false},
		"a Status":            {status, true},
		"a Status in pieces":  {status, false},
		"long":                {strings.Repeat(" ", 1<<20), true},
		"long and in pieces":  {strings.Repeat(" ", 1<<20), false},
	} {
		t.Run(name, func(t *testing.T) {
			client := proxied(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", runtime.ContentTypeJSON)
				if test.length {
					w.Header().Set("Content-Length", strconv.Itoa(len(test.body)))
				}
				w.WriteHeader(http.StatusNotFound)
				_, _ = io.WriteString(w, test.body[:5])
				if !test.length {
					w.(http.Flusher).Flush()
				}
				_, _ = io.WriteString(w, test.body[5:])
			})
			resp := client(http.MethodGet)
			body, err := io.ReadAll(resp.Body)
			if err != nil || string(body) != test.body || (resp.ContentLength == int64(len(test.body))) != test.length {
				t.Errorf("%d bytes became %d of a length of %d (%v)", len(test.body), len(body), resp.ContentLength, err)
			}
			if test.length {
				if resp := client(http.MethodHead); resp.ContentLength != int64(len(test.body)) {
					t.Errorf("HEAD: a length of %d", resp.ContentLength)
				}
			}
		})
	}
}

func TestTheErrorOfABackendReachesTheClientWhenItIsFlushed(t *testing.T) {
	w := httptest.NewRecorder()
	newFilter(t, func(inner http.ResponseWriter, _ *http.Request) {
		inner.Header().Set("Content-Type", runtime.ContentTypeJSON)
		inner.WriteHeader(http.StatusBadRequest)
		for i := range 3 {
			_, _ = io.WriteString(inner, "{}\n")
			inner.(http.Flusher).Flush()
			if want := strings.Repeat("{}\n", i+1); w.Body.String() != want {
				t.Errorf("%q was written, want %q", w.Body, want)
			}
		}
	}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, proxyPath, nil))
}

// proxied returns what sends a request to a service's proxy behind the filter. backend is
// the service's.
func proxied(t *testing.T, backend http.HandlerFunc) func(method string) *http.Response {
	t.Helper()
	behind := httptest.NewServer(backend)
	t.Cleanup(behind.Close)
	location, err := url.Parse(behind.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(newFilter(t, proxy.NewUpgradeAwareHandler(location, http.DefaultTransport, true, false, nil).ServeHTTP))
	t.Cleanup(server.Close)
	return func(method string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), method, server.URL+proxyPath, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
}

func TestALongErrorOfABackendIsNotHeld(t *testing.T) {
	piece := strings.Repeat("a", maxProxiedError/2+1)
	w := httptest.NewRecorder()
	newFilter(t, func(inner http.ResponseWriter, _ *http.Request) {
		inner.Header().Set("Content-Type", runtime.ContentTypeJSON)
		inner.WriteHeader(http.StatusBadRequest)
		for i, held := range []int{1, 0, 0} {
			_, _ = io.WriteString(inner, piece)
			if want := (i + 1 - held) * len(piece); w.Body.Len() != want {
				t.Errorf("after %d pieces %d bytes were written, want %d", i+1, w.Body.Len(), want)
			}
		}
	}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, proxyPath, nil))
	if w.Body.String() != strings.Repeat(piece, 3) {
		t.Errorf("%d bytes in all", w.Body.Len())
	}
}

// TestTheServersOwnErrorsOfProxiesSayTheDomainsNames has errors as the API server writes
// them.
func TestTheServersOwnErrorsOfProxiesSayTheDomainsNames(t *testing.T) {
	scheme, err := apis.NewScheme(apis.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	services := schema.GroupResource{Resource: "services"}
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML, runtime.ContentTypeProtobuf} {
		for own, want := range map[error]string{
			apierrors.NewForbidden(services, "s", errors.New(`User "u" cannot get resource "services/proxy" in API group "" in the namespace "n"`)): `in API group "core.svc.dev" in`,
			apierrors.NewNotFound(services, "s"): `services.core.svc.dev "s" not found`,
		} {
			req := httptest.NewRequest(http.MethodGet, proxyPath, nil)
			req.Header.Set("Accept", contentType)
			w := httptest.NewRecorder()
			newFilter(t, func(w http.ResponseWriter, req *http.Request) {
				responsewriters.ErrorNegotiated(own, serializer.NewCodecFactory(scheme), schema.GroupVersion{Version: "v1"}, w, req)
			}).ServeHTTP(w, req)
			body := strings.NewReplacer(`\"`, `"`, "\n  ", " ").Replace(w.Body.String())
			if w.Header().Get("Content-Type") != contentType || !strings.Contains(body, want) {
				t.Errorf("%s: %s, want %s in it", contentType, body, want)
			}
		}
	}
}

func TestWhatAStatusHasBesidesNamesStays(t *testing.T) {
	const path = "/apis/apps.svc.dev/v1/namespaces/n/deployments/a"
	for name, test := range map[string]struct{ contentType, stored, want string }{
		"members that are not known": {
			runtime.ContentTypeJSON,
			`{"trace":{"a":[1.0, 2e3]},"kind":"Status","apiVersion":"v1","message":"deployments.apps \"a\" not found","details":{"group":"apps","kind":"deployments","hint":"<b>"},"metadata":{}}` + "\n",
			`{"trace":{"a":[1.0, 2e3]},"kind":"Status","apiVersion":"v1","message":"deployments.apps.svc.dev \"a\" not found","details":{"group":"apps.svc.dev","kind":"deployments","hint":"<b>"},"metadata":{}}` + "\n",
		},
		"spaces, and a group that is not written": {
			runtime.ContentTypeJSON,
			"{\n  \"kind\": \"Status\",\n  \"apiVersion\": \"v1\",\n  \"message\": \"pods \\\"a\\\" not found\" ,\n  \"details\" : {\n    \"name\": \"a\",\n    \"kind\": \"pods\"\n  },\n  \"code\": 404\n}",
			"{\n  \"kind\": \"Status\",\n  \"apiVersion\": \"v1\",\n  \"message\": \"pods.core.svc.dev \\\"a\\\" not found\" ,\n  \"details\" : {\n    \"name\": \"a\",\n    \"kind\": \"pods\",\"group\":\"core.svc.dev\"\n  },\n  \"code\": 404\n}",
		},
		"no name": {
			runtime.ContentTypeJSON, `{"kind":"Status","apiVersion":"v1","message":"<a>","details":{"group":"apps"}}`, `{"kind":"Status","apiVersion":"v1","message":"<a>","details":{"group":"apps"}}`,
		},
		"YAML": {
			runtime.ContentTypeYAML,
			"apiVersion: v1\ncode: 404\ndetails:\n  group: apps\n  hint: b\n  kind: deployments\nkind: Status\nmessage: deployments.apps \"a\" not found\ntrace: 1\n",
			"apiVersion: v1\ncode: 404\ndetails:\n  group: apps.svc.dev\n  hint: b\n  kind: deployments\nkind: Status\nmessage: deployments.apps.svc.dev \"a\" not found\ntrace: 1\n",
		},
		"YAML without a name": {runtime.ContentTypeYAML, "kind: Status # c\napiVersion: v1\n", "kind: Status # c\napiVersion: v1\n"},
	} {
		w, _, _, _ := serveAs(t, httptest.NewRequest(http.MethodGet, path, nil), http.StatusNotFound, test.contentType, test.stored)
		if w.Body.String() != test.want {
			t.Errorf("%s: %s became\n%s\nwant\n%s", name, test.stored, w.Body, test.want)
		}
	}
}
