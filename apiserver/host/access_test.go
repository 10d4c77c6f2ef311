package host

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"

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
		got, _, err := (&access{host: host, names: names, fleet: "default"}).Authorize(ctx, test.attributes)
		if err != nil || got != test.want || !slices.Equal(host.asked, test.asked) {
			t.Errorf("%s: decision %v (%v) after %q, want %v after %q", name, got, err, host.asked, test.want, test.asked)
		}
	}
}

func TestAllNamespacesOfAFleetAreThoseThatItServes(t *testing.T) {
	names, err := groupdomain.New("svc.dev")
	if err != nil {
		t.Fatal(err)
	}
	alice := &user.DefaultInfo{Name: "alice"}
	all := Options{Namespaces: []string{"team"}}.served()
	for name, test := range map[string]struct {
		verb, resource, namespace string
		granted                   []string // namespaces
		want                      authorizer.Decision
	}{
		"read, with the right in each":     {"list", "pods", "", all, authorizer.DecisionAllow},
		"watched, with the right in each":  {"watch", "pods", "", all, authorizer.DecisionAllow},
		"without the right in one":         {"list", "pods", "", all[1:], authorizer.DecisionNoOpinion},
		"written":                          {"deletecollection", "pods", "", all, authorizer.DecisionNoOpinion},
		"objects that are in no namespace": {"list", "nodes", "", all, authorizer.DecisionNoOpinion},
		"another namespace":                {"list", "pods", "other", all, authorizer.DecisionNoOpinion},
		"one of them":                      {"create", "pods", "team", all, authorizer.DecisionAllow},
	} {
		host := &asked{allow: func(a authorizer.Attributes) bool { return slices.Contains(test.granted, a.GetNamespace()) }}
		a := &access{host: host, names: names, fleet: "default", served: all, namespaced: func(gr schema.GroupResource) bool { return gr.Resource == "pods" }}
		got, _, err := a.Authorize(t.Context(), authorizer.AttributesRecord{User: alice, Verb: test.verb, Resource: test.resource, Namespace: test.namespace, Path: "/x", ResourceRequest: true})
		if err != nil || got != test.want {
			t.Errorf("%s: decision %v (%v), want %v", name, got, err, test.want)
		}
	}
}

func TestAFleetOfSomeNamespacesReadsOnlyThese(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { asked = append(asked, req.URL.String()) }))
	defer server.Close()
	n, err := newNamespaces(&rest.Config{Host: server.URL}, Options{Namespaces: []string{"team"}}.served())
	if err != nil {
		t.Fatal(err)
	}
	const selector = "labelSelector=a%3Db%2Ckubernetes.io%2Fmetadata.name+in+%28default%2Ckube-node-lease%2Ckube-system%2Cteam%29"
	for path, want := range map[string]string{
		"/api/v1/namespaces/team":                      "/api/v1/namespaces/team",
		"/api/v1/watch/namespaces/team":                "/api/v1/watch/namespaces/team",
		"/api/v1/namespaces/other":                     "",
		"/api/v1/watch/namespaces/other":               "",
		"/api/v1/namespaces?labelSelector=a%3Db":       "/api/v1/namespaces?" + selector,
		"/api/v1/namespaces/?labelSelector=a%3Db":      "/api/v1/namespaces/?" + selector,
		"/api/v1/watch/namespaces?labelSelector=a%3Db": "/api/v1/watch/namespaces?" + selector,
	} {
		asked = nil
		response := httptest.NewRecorder()
		n.ServeHTTP(response, httptest.NewRequest(http.MethodGet, path, nil))
		switch {
		case want == "" && (len(asked) > 0 || response.Code != http.StatusNotFound || !strings.Contains(response.Body.String(), "the fleet serves default, kube-node-lease, kube-system, team")):
			t.Errorf("%s: asked the host for %q, answered %d %s", path, asked, response.Code, response.Body)
		case want != "" && !slices.Equal(asked, []string{want}):
			t.Errorf("%s: asked the host for %q, want %q", path, asked, want)
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
