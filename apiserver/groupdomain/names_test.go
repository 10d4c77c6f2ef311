package groupdomain

import "testing"

// newNames returns the names of svc.dev.
func newNames(t testing.TB) *Names {
	t.Helper()
	names, err := New("svc.dev")
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestAGroupIsServedWithoutK8sIOPlusTheDomain(t *testing.T) {
	names := newNames(t)
	for stored, public := range map[string]string{
		"":                          "core.svc.dev",
		"apps":                      "apps.svc.dev",
		"storage.k8s.io":            "storage.svc.dev",
		"rbac.authorization.k8s.io": "rbac.authorization.svc.dev",
		"example.com":               "example.com.svc.dev",
		"gateway.networking.k8s.io": "gateway.networking.k8s.io.svc.dev",
		// Groups of the host.
		"apps.host.svc.dev":        "apps",
		"core.host.svc.dev":        "",
		"example.com.host.svc.dev": "example.com",
	} {
		if got := names.Public(stored); got != public {
			t.Errorf("Public(%q) = %q, want %q", stored, got, public)
		}
		if got := names.Stored(public); got != stored {
			t.Errorf("Stored(%q) = %q, want %q", public, got, stored)
		}
	}
}

func TestTheDomainAloneIsNotTheCoreGroup(t *testing.T) {
	names := newNames(t)
	for _, group := range []string{".svc.dev", "svc.dev"} {
		if stored := names.Stored(group); names.Owns(group) || stored != group+host {
			t.Errorf("%q is stored as %q, and owned: %t", group, stored, names.Owns(group))
		}
	}
}

func TestVersionsAndQualifiedNamesAreTranslated(t *testing.T) {
	names := newNames(t)
	public, stored := names.toWire(), names.toStorage()
	for _, test := range []struct {
		translate func(string) string
		in, want  string
	}{
		{public.apiVersion, "v1", "core.svc.dev/v1"},
		{public.apiVersion, "apps/v1", "apps.svc.dev/v1"},
		{public.apiVersion, "", ""},
		{stored.apiVersion, "core.svc.dev/v1", "v1"},
		{stored.apiVersion, "apps/v1", "apps.host.svc.dev/v1"},
		{stored.apiVersion, "v1", "core.host.svc.dev/v1"},
		{public.qualified, "widgets.example.com", "widgets.example.com.svc.dev"},
		{stored.qualified, "widgets.example.com.svc.dev", "widgets.example.com"},
		{public.qualified, "v1.", "v1.core.svc.dev"},
		{stored.qualified, "v1.core.svc.dev", "v1."},
		{stored.qualified, "v1", "v1"},
	} {
		if got := test.translate(test.in); got != test.want {
			t.Errorf("%q became %q, want %q", test.in, got, test.want)
		}
	}
}

func TestGroupsOfDocumentsOfNoResourceKeepTheirSpelling(t *testing.T) {
	names, err := New("fleet.example.com")
	if err != nil {
		t.Fatal(err)
	}
	for group, want := range map[string]bool{
		"meta.k8s.io": true, "meta.svc.dev": true, "meta.fleet.example.com": true,
		"apidiscovery.k8s.io": true, "apidiscovery.svc.dev": true, "apidiscovery.fleet.example.com": true,
		"": false, "meta": false, "apps": false, "meta.example.com": false, "meta.": false, "metadata.k8s.io": false, "meta.k8s.io.fleet.example.com": false,
	} {
		if got := names.isCommon(group); got != want {
			t.Errorf("%q: %t, want %t", group, got, want)
		}
	}
}

func TestADomainOfKubernetesOrWithoutADotIsRefused(t *testing.T) {
	for domain, ok := range map[string]bool{
		"svc.dev": true, "a.b.example.com": true,
		"k8s.io": false, "x.k8s.io": false, "local": false, "": false, "Svc.dev": false, "-a.b": false,
	} {
		if err := Validate(domain); (err == nil) != ok {
			t.Errorf("Validate(%q): %v", domain, err)
		}
	}
}
