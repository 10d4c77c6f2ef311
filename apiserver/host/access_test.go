package host

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"svc.dev/svc/apiserver/groupdomain"
	"svc.dev/svc/internal/fleetaddress"
)

// asked is an authorizer that records what it is asked, and allows some of it.
type asked struct {
	authorizer.Authorizer
	allow func(a authorizer.Attributes) bool
	asked []string
}

func (a *asked) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	what := attributes.GetVerb() + " " + attributes.GetPath()
	if attributes.IsResourceRequest() {
		what = attributes.GetVerb() + " " + attributes.GetResource() + "." + attributes.GetAPIGroup()
		if sub := attributes.GetSubresource(); sub != "" {
			what += "/" + sub
		}
	}
	a.asked = append(a.asked, what)
	if a.allow(attributes) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "no", nil
}

// underStoredNames returns the context of a request to the fleet's own address.
func underStoredNames(t *testing.T, names *groupdomain.Names) (ctx context.Context) {
	t.Helper()
	handler := groupdomain.Filter(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { ctx = req.Context() }),
		groupdomain.Config{Names: names, FleetName: "default"})
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, names.FleetPath("default")+"/api/v1/pods", nil))
	return ctx
}

func TestTheHostDecidesByTheNamesOfTheDomain(t *testing.T) {
	names, err := groupdomain.New("svc.dev")
	if err != nil {
		t.Fatal(err)
	}
	alice, master := &user.DefaultInfo{Name: "alice"}, &user.DefaultInfo{Name: "m", Groups: []string{user.SystemPrivilegedGroup}}
	pods := authorizer.AttributesRecord{User: alice, Verb: "list", Resource: "pods", Path: "/api/v1/pods", ResourceRequest: true}
	review := authorizer.AttributesRecord{User: alice, Verb: "list", Resource: "pods", ResourceRequest: true}
	ofHost := authorizer.AttributesRecord{User: alice, Verb: "get", Resource: "namespaces", ResourceRequest: true}
	path := func(who user.Info, path string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{User: who, Verb: "get", Path: path}
	}
	all := func(authorizer.Attributes) bool { return true }
	noAddress := func(a authorizer.Attributes) bool { return a.GetResource() != fleetaddress.Resource }
	for name, test := range map[string]struct {
		attributes authorizer.AttributesRecord
		direct     bool // not to the fleet's own address
		allow      func(authorizer.Attributes) bool
		asked      []string
		want       authorizer.Decision
	}{
		"a resource":                        {pods, true, all, []string{"list pods.core.svc.dev"}, authorizer.DecisionAllow},
		"at the fleet's own address":        {pods, false, all, []string{"get fleets.fleet.svc.dev/proxy", "list pods.core.svc.dev"}, authorizer.DecisionAllow},
		"without the right to the address":  {pods, false, noAddress, []string{"get fleets.fleet.svc.dev/proxy"}, authorizer.DecisionNoOpinion},
		"a review of another user's access": {review, false, noAddress, []string{"list pods.core.svc.dev"}, authorizer.DecisionAllow},
		"namespaces":                        {ofHost, true, all, []string{"get namespaces."}, authorizer.DecisionAllow},
		"a path":                            {path(alice, "/version"), true, noAddress, []string{"get /version"}, authorizer.DecisionAllow},
		"a probe":                           {path(&user.DefaultInfo{Name: user.Anonymous}, "/readyz/etcd"), true, nil, nil, authorizer.DecisionAllow},
		"the host's aggregator":             {path(&user.DefaultInfo{Name: aggregator}, "/openapi/v2"), true, nil, nil, authorizer.DecisionAllow},
		"a member of system:masters":        {authorizer.AttributesRecord{User: master, Verb: "delete", Resource: "pods", ResourceRequest: true}, false, nil, nil, authorizer.DecisionAllow},
	} {
		ctx := t.Context()
		if !test.direct {
			ctx = underStoredNames(t, names)
		}
		host := &asked{allow: test.allow}
		got, _, err := newAuthorizer(host, names, "default").Authorize(ctx, test.attributes)
		if err != nil || got != test.want || !slices.Equal(host.asked, test.asked) {
			t.Errorf("%s: decision %v (%v) after %q, want %v after %q", name, got, err, host.asked, test.want, test.asked)
		}
	}
}

func TestOnlyNamespacesThemselvesAreServedByTheHost(t *testing.T) {
	for path, want := range map[string]bool{
		"/api/v1/namespaces": true, "/api/v1/namespaces/n": true, "/api/v1/namespaces/n/finalize": true, "/api/v1/watch/namespaces": true, "/api/v1/namespaces/": true,
		"/api/v1/namespaces/n/pods": false, "/api/v1/namespaces/n/status/x": false, "/api/v1/pods": false, "/apis/apps/v1/namespaces": false,
	} {
		if got := Serves(httptest.NewRequest(http.MethodGet, path, nil)); got != want {
			t.Errorf("Serves(%s) = %v", path, got)
		}
	}
}
