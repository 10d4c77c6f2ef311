package apiserver_test

import (
	"net/http"
	"strings"
	"testing"
)

func TestPrivilegedPodsAreAcceptedOnlyWithTheFlag(t *testing.T) {
	const pod = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
		"spec": {"containers": [{"name": "c", "image": "i", "securityContext": {"privileged": true}}]}}`
	const refusal = `Pod \"p\" is invalid: spec.containers[0].securityContext.privileged: Forbidden: disallowed by cluster policy`
	for _, allowed := range []bool{false, true} {
		o, _ := newOptions(t)
		o.AllowPrivileged = allowed
		r := start(t, o)
		code, body := r.do(t, http.MethodPost, "/api/v1/namespaces/default/pods", pod, false)
		if allowed && code != http.StatusCreated {
			t.Errorf("allowed: %d %s", code, body)
		}
		if !allowed && (code != http.StatusUnprocessableEntity || !strings.Contains(body, refusal)) {
			t.Errorf("not allowed: %d %s, want %s", code, body, refusal)
		}
		r.stop(t)
	}
}
