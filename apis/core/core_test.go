package core

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/resource/resourcetest"
)

// hubs are the kinds of the package, by name.
func hubs(t *testing.T) map[string]*resource.Kind {
	t.Helper()
	kinds := map[string]*resource.Kind{}
	for _, d := range Kinds() {
		kinds[d.Kind().Name] = d.Kind()
	}
	return kinds
}

func TestDefaultsAndTables(t *testing.T) { resourcetest.Golden(t, Kinds()) }

func TestFieldSelectorsAreThoseOfTheVersion(t *testing.T) {
	s := runtime.NewScheme()
	if err := scheme.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	for _, k := range hubs(t) {
		if err := k.AddToScheme(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ group, kind, label, want string }{
		{"", "Event", "involvedObject.name", "involvedObject.name"},
		{"", "Event", "reportingComponent", "reportingComponent"},
		{"", "Event", "regarding.name", ""},
		{"events.k8s.io", "Event", "regarding.name", "involvedObject.name"},
		{"events.k8s.io", "Event", "reportingController", "reportingComponent"},
		{"events.k8s.io", "Event", "source", ""},
		{"events.k8s.io", "Event", "metadata.namespace", "metadata.namespace"},
		{"", "Secret", "type", "type"},
		{"", "Namespace", "status.phase", "status.phase"},
		{"", "Namespace", "metadata.namespace", ""},
		{"", "Service", "spec.clusterIP", "spec.clusterIP"},
		{"", "Service", "spec.type", "spec.type"},
	} {
		gvk := schema.GroupVersionKind{Group: c.group, Version: "v1", Kind: c.kind}
		got, _, err := s.ConvertFieldLabel(gvk, c.label, "x")
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s: label %q became %q, %v; want %q", gvk, c.label, got, err, c.want)
		}
	}
}
