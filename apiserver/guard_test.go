package apiserver_test

import (
	"net/http"
	"os"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"svc.dev/svc/apiserver/authorization"
)

func TestAUserWithoutCreateCannotOpenAWebsocketIntoAContainer(t *testing.T) {
	o, _ := newOptions(t)
	if err := os.WriteFile(o.Authentication.TokenAuthFile, []byte("r,reader,1\nc,creator,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	into := []string{"pods/exec", "pods/attach", "pods/portforward"}
	grant := func(user string, verbs ...string) authorization.Grant {
		return authorization.Grant{User: user, Rules: []rbacv1.PolicyRule{{Verbs: verbs, APIGroups: []string{""}, Resources: into}}}
	}
	o.Authorization.Components = authorization.Grants{grant("reader", "get"), grant("creator", "get", "create")}
	r := start(t, o)
	open := func(token, method, subresource string) int {
		req, err := http.NewRequestWithContext(t.Context(), method, r.url+"/api/v1/namespaces/default/pods/none/"+strings.TrimPrefix(subresource, "pods/"), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	for _, subresource := range into {
		for _, test := range []struct {
			token, method string
			want          int
		}{
			{"r", http.MethodGet, http.StatusForbidden},
			{"r", http.MethodPost, http.StatusForbidden},
			{"c", http.MethodGet, http.StatusNotFound}, // the pod does not exist
			{"c", http.MethodPost, http.StatusNotFound},
		} {
			if got := open(test.token, test.method, subresource); got != test.want {
				t.Errorf("%s %s by %s is answered with %d, want %d", test.method, subresource, test.token, got, test.want)
			}
		}
	}
}
