package registration

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"

	"svc.dev/svc/apiserver/release"
)

func names(t *testing.T, r release.Release) map[string]*apiregistrationv1.APIService {
	t.Helper()
	groups, err := New(r, "svc.example.com")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*apiregistrationv1.APIService{}
	for _, s := range groups.APIServices(types.NamespacedName{Namespace: "a", Name: "b"}) {
		all[s.Name] = s
	}
	return all
}

func TestEveryServedVersionHasAnAPIServiceInTheDomain(t *testing.T) {
	all := names(t, release.Default)
	for _, name := range []string{
		"v1.core.svc.example.com", "v1.apps.svc.example.com", "v1.storage.svc.example.com", "v1.rbac.authorization.svc.example.com",
		"v1.apiextensions.svc.example.com", "v1.fleet.svc.example.com", "v2.autoscaling.svc.example.com",
	} {
		s := all[name]
		if s == nil {
			t.Errorf("%s is missing", name)
			continue
		}
		if to := s.Spec.Service; to.Namespace != "a" || to.Name != "b" || s.Spec.InsecureSkipTLSVerify {
			t.Errorf("%s: %+v", name, s.Spec)
		}
	}
	for name := range all {
		if !strings.HasSuffix(name, ".svc.example.com") || strings.Contains(name, "k8s.io") {
			t.Errorf("%s is not of the domain", name)
		}
	}
	if all["v1beta1.metrics.svc.example.com"] != nil {
		t.Error("metrics are registered, which are not served by default")
	}
}

func TestVersionsOfAnotherReleaseAreItsOwn(t *testing.T) {
	all := names(t, release.Default)
	if v1beta3, v1beta2 := all["v1beta3.flowcontrol.apiserver.svc.example.com"], all["v1beta2.flowcontrol.apiserver.svc.example.com"]; v1beta3 == nil || v1beta2 == nil ||
		v1beta3.Spec.VersionPriority <= v1beta2.Spec.VersionPriority {
		t.Error("want v1beta3 of flow control, preferred to v1beta2")
	}
	if later := names(t, release.Release{Major: 1, Minor: 32}); later["v1.flowcontrol.apiserver.svc.example.com"] == nil || later["v1beta3.flowcontrol.apiserver.svc.example.com"] != nil {
		t.Error("want v1 of flow control alone in release 1.32")
	}
}

func service(name string, to *apiregistrationv1.ServiceReference) *apiregistrationv1.APIService {
	_, group, _ := strings.Cut(name, ".")
	return &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apiregistrationv1.APIServiceSpec{Group: group, Service: to}}
}

func TestRemoveLeavesTheGroupsOfOthers(t *testing.T) {
	own, other := &apiregistrationv1.ServiceReference{Namespace: "a", Name: "b"}, &apiregistrationv1.ServiceReference{Namespace: "c", Name: "b"}
	all := []runtime.Object{
		service("v1.apps.svc.dev", own), service("v1.fleet.svc.dev", own), service("v1.widgets.example.com.svc.dev", own),
		service("v1.apps", nil), service("v1.own.svc.dev", nil), service("v1.apps.notsvc.dev", own),
		service("v1beta1.metrics.k8s.io", other), service("v1.mail.svc.dev", other),
		service("v1.apps.eu.svc.dev", other), service("v1.fleet.eu.svc.dev", other),
	}
	for domain, want := range map[string]string{
		"svc.dev":    "v1.apps.svc.dev v1.widgets.example.com.svc.dev v1.fleet.svc.dev", // that which names the servers is the last
		"eu.svc.dev": "v1.apps.eu.svc.dev v1.fleet.eu.svc.dev",
		"us.svc.dev": "",
	} {
		t.Run(domain, func(t *testing.T) {
			host := fake.NewSimpleClientset(all...)
			services, err := Registered(t.Context(), host, domain)
			if err != nil {
				t.Fatal(err)
			}
			removed, err := Remove(t.Context(), host, services)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(removed, " "); got != want {
				t.Errorf("removed %s, want %s", got, want)
			}
			left, err := host.ApiregistrationV1().APIServices().List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(left.Items) != len(all)-len(removed) {
				t.Errorf("%d are left of %d", len(left.Items), len(all))
			}
		})
	}
}

func TestWithoutTheGroupOfFleetsTheBuiltInGroupsNameTheService(t *testing.T) {
	own, other := &apiregistrationv1.ServiceReference{Namespace: "a", Name: "b"}, &apiregistrationv1.ServiceReference{Namespace: "c", Name: "b"}
	for _, c := range []struct {
		name       string
		has        []runtime.Object
		want, fail string
	}{
		{name: "that of all of them", want: "v1.core.svc.dev v1.widgets.example.com.svc.dev v1.apps.svc.dev", has: []runtime.Object{
			service("v1.apps.svc.dev", own), service("v1.core.svc.dev", own), service("v1.widgets.example.com.svc.dev", own), service("v1.batch.svc.dev", nil),
			service("v1.mail.svc.dev", other), service("v1.apps.eu.svc.dev", other), service("v1.fleet.eu.svc.dev", other), service("v1.apps.notsvc.dev", other),
		}},
		{name: "none, if what is left is not of the domain", has: []runtime.Object{
			service("v1.mail.svc.dev", other), service("v1.apps.eu.svc.dev", other), service("v1.fleet.eu.svc.dev", other), service("v1.apps", nil),
		}},
		{name: "not one of several", has: []runtime.Object{service("v1.apps.svc.dev", own), service("v1.core.svc.dev", own), service("v1.batch.svc.dev", other)},
			fail: "v1.fleet.svc.dev is missing, and the other APIServices of svc.dev lead to different Services: v1.apps.svc.dev to a/b, v1.batch.svc.dev to c/b, v1.core.svc.dev to a/b; " +
				"delete those of the fleet by their names: kubectl delete apiservice NAME"},
	} {
		t.Run(c.name, func(t *testing.T) {
			services, err := Registered(t.Context(), fake.NewSimpleClientset(c.has...), "svc.dev")
			if (err != nil) != (c.fail != "") || err != nil && err.Error() != c.fail {
				t.Fatalf("%v, want %q", err, c.fail)
			}
			var names []string
			for _, s := range services {
				names = append(names, s.Name)
			}
			if got := strings.Join(names, " "); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestTheHostsOwnDomainIsRefused(t *testing.T) {
	for _, domain := range []string{"k8s.io", "metrics.k8s.io", "", "dev", "Svc.dev"} {
		if _, err := Registered(t.Context(), fake.NewSimpleClientset(), domain); err == nil {
			t.Errorf("%q is accepted", domain)
		}
	}
}

func TestADomainDoesNotShadowGroupsOfItsHost(t *testing.T) {
	groups, err := New(release.Default, "svc.example.com")
	if err != nil {
		t.Fatal(err)
	}
	own := types.NamespacedName{Namespace: "svc-system", Name: "svc-apiserver"}
	service := func(name, group string, to *apiregistrationv1.ServiceReference) *apiregistrationv1.APIService {
		return &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apiregistrationv1.APIServiceSpec{Group: group, Service: to}}
	}
	for _, c := range []struct {
		name, want string
		has        *apiregistrationv1.APIService
	}{
		{"its own groups", "", groups.APIServices(own)[0]},
		{"a group of the host outside of the domain", "", service("v1.apps", "apps", nil)},
		{"another group in the domain", "", service("v1.mail.svc.example.com", "mail.svc.example.com", nil)},
		{"a definition's group", "networking.svc.example.com is served by the host itself already (APIService v3.networking.svc.example.com)",
			service("v3.networking.svc.example.com", "networking.svc.example.com", nil)},
		{"another server's group", "apps.svc.example.com is served by the Service other/svc-apiserver already (APIService v1.apps.svc.example.com)",
			service("v1.apps.svc.example.com", "apps.svc.example.com", &apiregistrationv1.ServiceReference{Namespace: "other", Name: "svc-apiserver"})},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := groups.CheckOwn(t.Context(), fake.NewClientset(c.has), own)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
