package openapi

import (
	"strings"
	"testing"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

func TestDefinitionsAreComplete(t *testing.T) {
	definitions := GetOpenAPIDefinitions(func(name string) spec.Ref {
		return spec.MustCreateRef("#/definitions/" + name)
	})
	for _, name := range []string{
		"io.k8s.api.core.v1.Pod",
		"io.k8s.api.apps.v1.Deployment",
		"io.k8s.api.flowcontrol.v1beta3.FlowSchema",
		"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
		"io.k8s.apimachinery.pkg.api.resource.Quantity",
		"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
		"io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.APIService",
	} {
		if _, ok := definitions[name]; !ok {
			t.Errorf("no definition of %s", name)
		}
	}
	for name, definition := range definitions {
		if !strings.HasPrefix(name, "io.k8s.") {
			t.Errorf("%s is not named by its OpenAPIModelName", name)
		}
		for _, dependency := range definition.Dependencies {
			if _, ok := definitions[dependency]; !ok {
				t.Errorf("%s refers to %s, whose package is missing from hack/generate.sh", name, dependency)
			}
		}
	}
}
