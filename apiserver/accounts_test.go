package apiserver_test

import (
	"net/http"
	"strings"
	"testing"

	"svc.dev/svc/apiserver/admission/serviceaccount"
)

func TestPodsRunAsAServiceAccountThatExists(t *testing.T) {
	o, _ := newOptions(t)
	o.Admission.DisablePlugins, o.Admission.EnablePlugins = nil, []string{serviceaccount.PluginName}
	r := start(t, o)
	const accounts, pods = "/api/v1/namespaces/default/serviceaccounts", "/api/v1/namespaces/default/pods"
	const pod = `{"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}`
	for _, step := range []struct {
		rule, method, path, body string
		code                     int
		answer                   string
	}{
		{"a pod of an absent account is refused", http.MethodPost, pods, pod, http.StatusForbidden,
			`error looking up service account default/default: serviceaccount \"default\" not found`},
		{"its account is created", http.MethodPost, accounts, `{"metadata": {"name": "default"}}`, http.StatusCreated, `"name":"default"`},
		{"the pod gets the account and its token", http.MethodPost, pods, pod, http.StatusCreated, `"serviceAccountName":"default","serviceAccount":"default"`},
		{"whose volume is mounted", http.MethodGet, pods + "/a", "", http.StatusOK, `"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"`},
	} {
		if code, body := r.do(t, step.method, step.path, step.body, false); code != step.code || !strings.Contains(body, step.answer) {
			t.Errorf("%s: %d %s, want %d with %s", step.rule, code, body, step.code, step.answer)
		}
	}
}
