package collection

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// respond returns the body of a filtered response to a request of a verb. The
// handler writes the body in pieces of a size.
func respond(t *testing.T, verb, contentType string, status int, body string, size int) string {
	t.Helper()
	handler := Filter(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		for rest := body; rest != ""; {
			n := min(size, len(rest))
			if written, err := io.WriteString(w, rest[:n]); err != nil || written != n {
				t.Errorf("Write returned %d, %v", written, err)
			}
			rest = rest[n:]
		}
	}))
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	req = req.WithContext(request.WithRequestInfo(req.Context(), &request.RequestInfo{IsResourceRequest: true, Verb: verb}))
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, req)
	if w.Code != status {
		t.Errorf("status = %d, want %d", w.Code, status)
	}
	return w.Body.String()
}

func TestContinueIsInEveryList(t *testing.T) {
	for _, tc := range []struct{ rule, in, want string }{
		{
			"a complete list gets an empty token",
			`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[{"metadata":{}}]}`,
			`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5","continue":""},"items":[{"metadata":{}}]}`,
		},
		{
			"a chunk keeps its token",
			`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5","continue":"abc","remainingItemCount":3},"items":[]}`, "",
		},
		{
			"a list without metadata gets it",
			`{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`,
			`{"kind":"PodList","apiVersion":"v1","metadata":{"continue":""},"items":[]}`,
		},
		{
			"an indented list gets an indented line",
			"{\n  \"kind\": \"PodList\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {\n    \"resourceVersion\": \"5\"\n  },\n  \"items\": []\n}",
			"{\n  \"kind\": \"PodList\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {\n    \"resourceVersion\": \"5\",\n    \"continue\": \"\"\n  },\n  \"items\": []\n}",
		},
		{"a list in another order stays", `{"apiVersion":"v1","items":[],"kind":"PodList","metadata":{"resourceVersion":"5"}}`, ""},
		{"what is no list stays", `[{"kind":"x"}]`, ""},
		{"a body that breaks off stays", `{"kind":"PodList","apiVersion":"v1","metadata":{`, ""},
		{"a long body without metadata stays", `{"kind":"` + strings.Repeat("x", 2*maxHead), ""},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			if tc.want == "" {
				tc.want = tc.in
			}
			for _, size := range []int{7, 1 << 20} {
				if got := respond(t, "list", "application/json", 200, tc.in, size); got != tc.want {
					t.Errorf("in pieces of %d bytes: %.200s\nwant %.200s", size, got, tc.want)
				}
			}
		})
	}
}

func TestContinueIsInListsInYAML(t *testing.T) {
	const without = "apiVersion: v1\nitems:\n- metadata:\n    name: a\nkind: PodList\nmetadata:\n  resourceVersion: \"5\"\n"
	const with = "apiVersion: v1\nitems:\n- metadata:\n    name: a\nkind: PodList\nmetadata:\n  continue: \"\"\n  resourceVersion: \"5\"\n"
	for _, in := range []string{without, with} {
		if got := respond(t, "list", "application/yaml", 200, in, 1<<20); got != with {
			t.Errorf("got %s\nwant %s", got, with)
		}
	}
}

func TestOtherResponsesStay(t *testing.T) {
	const body = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[]}`
	for name, got := range map[string]string{
		"of another verb":         respond(t, "get", "application/json", 200, body, 9),
		"of another content type": respond(t, "list", "application/vnd.kubernetes.protobuf", 200, body, 9),
		"of another status":       respond(t, "list", "application/json", 500, body, 9),
	} {
		if got != body {
			t.Errorf("a response %s became %s", name, got)
		}
	}
}
