package release

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/internal/releases"
)

func TestRemovedVersionsNameWhatReplacesThem(t *testing.T) {
	for _, test := range []struct {
		release                  Release
		group, version, resource string
		want                     string
	}{
		{Release{1, 28}, "extensions", "v1beta1", "ingresses", `extensions/v1beta1 Ingress is not served since release 1.22: use networking.k8s.io/v1; "svc convert" converts manifests`},
		{Release{1, 21}, "extensions", "v1beta1", "ingresses", ""},
		{Release{1, 28}, "policy", "v1beta1", "podsecuritypolicies", `policy/v1beta1 PodSecurityPolicy is not served since release 1.25, and nothing replaces it: "svc convert --check" lists what to do`},
		{Release{1, 25}, "batch", "v1beta1", "cronjobs", `batch/v1beta1 CronJob is not served since release 1.25: use batch/v1; "svc convert" converts manifests`},
		{Release{1, 28}, "apps", "v1", "deployments", ""},
		{Release{1, 28}, "", "v1", "nothings", ""},
	} {
		served, err := NewServed(test.release, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := served.Removed(schema.GroupVersionResource{Group: test.group, Version: test.version, Resource: test.resource}, func(group string) string { return group }); got != test.want {
			t.Errorf("%v %s: %q, want %q", test.release, test.resource, got, test.want)
		}
	}
}

func TestRemovedVersionsHaveTheNamesThatTheClientUses(t *testing.T) {
	served, err := NewServed(Release{1, 28}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := served.Removed(schema.GroupVersionResource{Group: "extensions", Version: "v1beta1", Resource: "ingresses"}, func(group string) string { return strings.TrimSuffix(group, ".k8s.io") + ".svc.dev" })
	want := `extensions.svc.dev/v1beta1 Ingress is not served since release 1.22: use networking.svc.dev/v1; "svc convert" converts manifests`
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestRemovedKind(t *testing.T) {
	table, err := releases.LoadKinds()
	if err != nil {
		t.Fatal(err)
	}
	if got := RemovedKind(table, schema.GroupVersionKind{Group: "policy", Version: "v1beta1", Kind: "PodDisruptionBudget"}, Newest); !strings.Contains(got, "use policy/v1;") {
		t.Error(got)
	}
	if got := RemovedKind(table, schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}, Newest); got != "" {
		t.Error(got)
	}
}
