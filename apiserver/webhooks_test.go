package apiserver_test

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
)

const webhooksPath = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"

// webhook serves one response to every review of configmaps of the server, which waits for
// it for the seconds of timeout. Remove returns when it is not asked any more.
func webhook(t *testing.T, r *running, policy string, timeout int, answer http.HandlerFunc) (register, remove func()) {
	t.Helper()
	hook := httptest.NewTLSServer(answer)
	t.Cleanup(hook.Close)
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}))
	body := fmt.Sprintf(`{"metadata": {"name": "hostile"}, "webhooks": [{"name": "hostile.example.com", "failurePolicy": %q, "timeoutSeconds": %d,
		"sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": {"url": %q, "caBundle": %q},
		"rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
		"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}]}`, policy, timeout, hook.URL, ca)
	return func() {
			if code, answer := r.do(t, http.MethodPost, webhooksPath, body, false); code != http.StatusCreated {
				t.Fatalf("register: %d %s", code, answer)
			}
		}, func() {
			if code, answer := r.do(t, http.MethodDelete, webhooksPath+"/hostile", "", false); code != http.StatusOK {
				t.Fatalf("remove: %d %s", code, answer)
			}
			await(t, func() (int, string) {
				return r.do(t, http.MethodPost, "/api/v1/namespaces/default/configmaps?dryRun=All", `{"metadata": {"name": "victim"}}`, false)
			}, http.StatusCreated)
		}
}

// review answers a review with what change makes of an allowing response.
func review(change func(*admissionv1.AdmissionReview)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		review.Request = nil
		change(&review)
		_ = json.NewEncoder(w).Encode(review)
	}
}

// patch answers a review with a JSON patch.
func patch(operations string) http.HandlerFunc {
	return review(func(r *admissionv1.AdmissionReview) {
		kind := admissionv1.PatchTypeJSONPatch
		r.Response.PatchType, r.Response.Patch = &kind, []byte(operations)
	})
}

// bomb is a JSON patch that doubles the object with each operation.
func bomb() string {
	operations := []string{`{"op": "add", "path": "/metadata/annotations", "value": {"a": "` + strings.Repeat("x", 1000) + `"}}`}
	for i := range 40 {
		operations = append(operations, fmt.Sprintf(`{"op": "copy", "from": "/metadata", "path": "/metadata/annotations/a%d"}`, i))
	}
	return "[" + strings.Join(operations, ",") + "]"
}

func TestAHostileWebhookFailsItsRequestAndNothingElse(t *testing.T) {
	r := startNew(t)
	const maps = "/api/v1/namespaces/default/configmaps"
	const slow = "slow"
	for _, test := range []struct {
		rule   string
		answer http.HandlerFunc
		want   string
	}{
		{slow, func(_ http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body) // otherwise the end of the connection is not noticed
			<-req.Context().Done()
		}, "context deadline exceeded"},
		{"no JSON", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, "failed to call webhook"},
		{"another kind", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"apiVersion": "v1", "kind": "Pod"}`) }, "failed to call webhook"},
		{"the review of another request", review(func(r *admissionv1.AdmissionReview) { r.Response.UID = "other" }), "expected response.uid="},
		{"a response without a verdict", review(func(r *admissionv1.AdmissionReview) { r.Response = nil }), "webhook response was absent"},
		{"an enormous response", func(w http.ResponseWriter, _ *http.Request) {
			block := []byte(strings.Repeat(" ", 1<<20))
			for {
				if _, err := w.Write(block); err != nil {
					return // the server has closed the connection
				}
			}
		}, "the response is longer than 167"},
		{"a patch that is none", patch(`{`), "received undecodable patch in webhook response"},
		{"a patch that explodes", patch(bomb()), "the accumulated size increase of copy is"},
		{"a patch that is nested deeply", patch(`[{"op": "add", "path": "/data", "value": ` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}]`), "max depth"},
		{"a patch that makes the object invalid", patch(`[{"op": "add", "path": "/data", "value": {"not a key!": "x"}}]`), "a valid config key must consist of"},
		{"a patch that moves the object", patch(`[{"op": "replace", "path": "/metadata/namespace", "value": "kube-system"}]`), "does not match the namespace"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			timeout := 30 // a busy machine answers late
			if test.rule == slow {
				timeout = 1
			}
			register, remove := webhook(t, r, "Fail", timeout, test.answer)
			register()
			defer remove()
			// The webhook is called from a moment after it was registered on.
			body := ""
			await(t, func() (int, string) {
				var code int
				if code, body = r.do(t, http.MethodPost, maps+"?dryRun=All", `{"metadata": {"name": "victim"}}`, false); code == http.StatusCreated {
					return http.StatusCreated, body
				}
				return http.StatusTeapot, body // any refusal
			}, http.StatusTeapot)
			if !strings.Contains(body, test.want) {
				t.Errorf("answered %.300s, want %q", body, test.want)
			}
			if code, answer := r.do(t, http.MethodPost, "/api/v1/namespaces/kube-system/configmaps?dryRun=All", `{"metadata": {"name": "victim"}}`, false); code != http.StatusCreated {
				t.Errorf("a request that the webhook does not select is answered with %d %s", code, answer)
			}
		})
	}
	if code, answer := r.get(t, maps+"/victim", false); code != http.StatusNotFound {
		t.Errorf("an object was written: %d %s", code, answer)
	}
}

func TestAHostileWebhookThatMayFailDoesNotStopRequests(t *testing.T) {
	r := startNew(t)
	called := make(chan struct{}, 100)
	register, _ := webhook(t, r, "Ignore", 1, func(w http.ResponseWriter, _ *http.Request) {
		called <- struct{}{}
		fmt.Fprint(w, strings.Repeat(" ", 32<<20))
	})
	register()
	await(t, func() (int, string) {
		code, body := r.do(t, http.MethodPost, "/api/v1/namespaces/default/configmaps", `{"metadata": {"generateName": "a-"}}`, false)
		if code != http.StatusCreated {
			t.Fatalf("%d %s", code, body)
		}
		if len(called) == 0 {
			return http.StatusContinue, "the webhook has not been called yet"
		}
		return code, body
	}, http.StatusCreated)
}
