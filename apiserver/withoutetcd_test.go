package apiserver_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// TestATokenOfAPodIsAcceptedWithoutEtcd uses a token for the first time when etcd has
// stopped, as one whose last result has expired: what the watch cache has can still be read.
func TestATokenOfAPodIsAcceptedWithoutEtcd(t *testing.T) {
	o, member := newOptions(t)
	s := startStage(t, o)
	const core = "/api/v1/namespaces/default"
	s.must(http.MethodPost, core+"/serviceaccounts", `{"metadata": {"name": "till"}}`)
	s.must(http.MethodPost, core+"/pods", pod("web", "", "till"))
	var request authenticationv1.TokenRequest
	issued := s.must(http.MethodPost, core+"/serviceaccounts/till/token", `{"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "web"}}}`)
	if err := json.Unmarshal([]byte(issued), &request); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"serviceaccounts", "pods"} { // whose watch caches their clients have opened
		s.must(http.MethodGet, core+"/"+kind+"?resourceVersion=0", "")
	}
	member.Stop()
	code, body := s.request(request.Status.Token, http.MethodGet, core+"/pods?resourceVersion=0", "", nil)
	if code != http.StatusForbidden || !strings.Contains(body, "system:serviceaccount:default:till") {
		t.Errorf("%d %s, want what the account has no permission for", code, body)
	}
}
