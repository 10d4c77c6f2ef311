package compression

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"
)

const body = `{"kind":"ConfigMap"}`

// respond filters a response of the content type and status to a request.
func respond(verb, encoding, contentType string, status int) *http.Response {
	handler := Filter(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}), nil)
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	req.Header.Set("Accept-Encoding", encoding)
	req = req.WithContext(request.WithRequestInfo(req.Context(), &request.RequestInfo{IsResourceRequest: true, Verb: verb}))
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, req)
	return w.Result()
}

func TestWhatIsCompressed(t *testing.T) {
	for _, tc := range []struct {
		rule, verb, encoding, contentType string
		status                            int
		want                              bool
	}{
		{"a get", "get", "gzip", "application/json", 200, true},
		{"a list, if another encoding is accepted, too", "list", "deflate, gzip;q=0.5", "application/yaml", 200, true},
		{"protobuf, and the encoding in upper case", "list", "GZIP", "application/vnd.kubernetes.protobuf", 200, true},
		{"a table", "list", "gzip", "application/json;as=Table", 200, true},
		{"not a watch", "watch", "gzip", "application/json", 200, false},
		{"not a creation", "create", "gzip", "application/json", 200, false},
		{"not a log", "get", "gzip", "text/plain", 200, false},
		{"not an error", "get", "gzip", "application/json", 404, false},
		{"not without being asked", "get", "", "application/json", 200, false},
		{"not for another encoding", "get", "deflate", "application/json", 200, false},
		{"not when it is refused", "get", "gzip;q=0", "application/json", 200, false},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			resp := respond(tc.verb, tc.encoding, tc.contentType, tc.status)
			defer resp.Body.Close()
			if resp.StatusCode != tc.status {
				t.Errorf("status = %d, want %d", resp.StatusCode, tc.status)
			}
			if got := resp.Header.Get("Content-Encoding") == "gzip"; got != tc.want {
				t.Fatalf("compressed = %v, want %v", got, tc.want)
			}
			var content io.Reader = resp.Body
			if tc.want {
				var err error
				if content, err = gzip.NewReader(content); err != nil {
					t.Fatal(err)
				}
			}
			got, err := io.ReadAll(content)
			if err != nil || string(got) != body {
				t.Errorf("body = %q, %v", got, err)
			}
		})
	}
}

func TestProxiedRequestsAndResponsesStay(t *testing.T) {
	handler := Filter(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if got := req.Header.Get("Accept-Encoding"); got != "gzip" {
			t.Errorf("the server behind the proxy sees Accept-Encoding %q", got)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	}), nil)
	for _, resource := range []string{"pods", "services", "nodes"} {
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.Header.Set("Accept-Encoding", "gzip")
		info := &request.RequestInfo{IsResourceRequest: true, Verb: "get", Resource: resource, Subresource: "proxy"}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req.WithContext(request.WithRequestInfo(req.Context(), info)))
		if w.Body.String() != body || w.Header().Get("Content-Encoding") != "" {
			t.Errorf("%s: body = %q, %v", resource, w.Body, w.Header())
		}
	}
}

func TestARemoteServersCompressionStays(t *testing.T) {
	handler := Filter(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Accept-Encoding") != "" {
			t.Error("the handler is asked to compress")
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.WriteString(w, "compressed already")
	}), nil)
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	req.Header.Set("Accept-Encoding", "gzip")
	req = req.WithContext(request.WithRequestInfo(req.Context(), &request.RequestInfo{IsResourceRequest: true, Verb: "get"}))
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, req)
	if w.Body.String() != "compressed already" {
		t.Errorf("body = %q", w.Body)
	}
}

func BenchmarkSmallObject(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_ = respond("get", "gzip", "application/json", 200).Body.Close()
	}
}
