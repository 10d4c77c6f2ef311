package customvalidation

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/apiserver/errorlimit"
)

// widgetSchema has a list whose items are found by their names, and a list that is atomic.
const widgetSchema = `
type: object
properties:
  spec:
    type: object
    properties:
      parts:
        type: array
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [name]
        items:
          type: object
          required: [name]
          properties:
            name: {type: string}
            size: {type: integer, maximum: 10}
            color: {type: string, pattern: "^[a-z]+$"}
      limits: {type: object, additionalProperties: {type: integer, minimum: 0}}
      tags: {type: array, x-kubernetes-list-type: set, items: {type: string}}
      sums:
        type: array
        maxItems: 100000
        items: {type: object, properties: {a: {type: integer}, b: {type: integer}}, x-kubernetes-validations: [{rule: "self.a < self.b"}]}
  status: {type: object, properties: {states: {type: array, items: {type: string, maxLength: 1}}}}
`

func widgets(t testing.TB) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	var props apiextensionsv1.JSONSchemaProps
	if err := yaml.Unmarshal([]byte(widgetSchema), &props); err != nil {
		t.Fatal(err)
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: "example.com", Scope: apiextensionsv1.NamespaceScoped, Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1", Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &props},
			Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
		}}},
	}
}

// many returns n values.
func many(n int, value func(i int) any) []any {
	values := make([]any, n)
	for i := range values {
		values[i] = value(i)
	}
	return values
}

// parts are n parts, of which the first have a size that is too large.
func parts(n, invalid int) []any {
	return many(n, func(i int) any {
		size := int64(1)
		if i < invalid {
			size = 11
		}
		return map[string]any{"name": fmt.Sprint("p", i), "size": size}
	})
}

func widget(spec, status map[string]any) *unstructured.Unstructured {
	object := map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w", "namespace": "default"}, "spec": spec,
	}
	if status != nil {
		object["status"] = status
	}
	return &unstructured.Unstructured{Object: object}
}

// admit passes a write to the limit; old is nil for a new object.
func admit(t testing.TB, obj, old *unstructured.Unstructured, subresource string) error {
	t.Helper()
	definition := widgets(t)
	chain := Limit(nil, func(name string) (*apiextensionsv1.CustomResourceDefinition, error) {
		if name != definition.Name {
			return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
		}
		return definition, nil
	})
	operation := admission.Update
	if old == nil {
		operation = admission.Create
	}
	gvk := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	a := admission.NewAttributesRecord(obj, nil, gvk, "default", "w", gvk.GroupVersion().WithResource("widgets"), subresource, operation, nil, false, nil)
	if old != nil {
		a = admission.NewAttributesRecord(obj, old, gvk, "default", "w", gvk.GroupVersion().WithResource("widgets"), subresource, operation, nil, false, nil)
	}
	return chain.(admission.MutationInterface).Admit(t.Context(), a, nil)
}

func TestVeryManyErrorsAreCountedAndTheFirstListed(t *testing.T) {
	invalidStates := map[string]any{"states": many(2000, func(int) any { return "long" })}
	for rule, test := range map[string]struct {
		obj, old    *unstructured.Unstructured
		subresource string
		errors      int
		first       string
	}{
		"items of a list":              {obj: widget(map[string]any{"parts": parts(20_000, 20_000)}, nil), errors: 20_000, first: "spec.parts[0].size: Invalid value: 11: spec.parts[0].size in body should be less than or equal to 10"},
		"few of many items":            {obj: widget(map[string]any{"parts": parts(20_000, 100)}, nil)},
		"one more than are listed":     {obj: widget(map[string]any{"parts": parts(20_000, 101)}, nil), errors: 101, first: "spec.parts[0].size"},
		"required members":             {obj: widget(map[string]any{"parts": many(20_000, func(int) any { return map[string]any{} })}, nil), errors: 20_000 + 1, first: "spec.parts[0].name: Required value"},
		"values of a map":              {obj: widget(map[string]any{"limits": mapOf(20_000, int64(-1))}, nil), errors: 20_000, first: "spec.limits.k"},
		"wrong types":                  {obj: widget(map[string]any{"parts": many(20_000, func(int) any { return "text" })}, nil), errors: 20_000 + 1, first: "spec.parts[0]: Invalid value: \"string\": spec.parts[0] in body must be of type object"},
		"items that are twice in sets": {obj: widget(map[string]any{"tags": many(20_000, func(i int) any { return fmt.Sprint(i / 2) })}, nil), errors: 10_000, first: "spec.tags[1]: Duplicate value"},
		"broken rules":                 {obj: widget(map[string]any{"sums": many(20_000, func(int) any { return map[string]any{"a": int64(2), "b": int64(1)} })}, nil), errors: 20_000, first: "spec.sums[0]: Invalid value: failed rule: self.a < self.b"},
		"labels":                       {obj: labeled(20_000), errors: 20_000, first: "metadata.labels: Invalid value: \"-"},
		"a status of a new object, which is not stored": {obj: widget(map[string]any{"parts": parts(2000, 0)}, invalidStates)},
		"a new status":                          {obj: widget(map[string]any{}, invalidStates), old: widget(map[string]any{}, nil), subresource: "status", errors: 2000, first: "status.states[0]: Too long"},
		"a spec beside the status, which stays": {obj: widget(map[string]any{"parts": parts(2000, 2000)}, nil), old: widget(map[string]any{}, nil), subresource: "status"},
		"items that an update leaves":           {obj: widget(map[string]any{"parts": append(parts(20_000, 20_000), map[string]any{"name": "new"})}, nil), old: widget(map[string]any{"parts": parts(20_000, 20_000)}, nil)},
		"items that an update adds":             {obj: widget(map[string]any{"parts": parts(20_000, 20_000)}, nil), old: widget(map[string]any{"parts": parts(15_000, 15_000)}, nil), errors: 5000, first: "spec.parts[15000].size"},
		"a small object":                        {obj: widget(map[string]any{"parts": parts(200, 200)}, nil)},
	} {
		t.Run(rule, func(t *testing.T) {
			err := admit(t, test.obj, test.old, test.subresource)
			if test.errors == 0 {
				if err != nil {
					t.Errorf("refused: %.200s", err)
				}
				return
			}
			expectErrors(t, err, test.errors, test.first)
		})
	}
}

func mapOf(n int, value any) map[string]any {
	values := map[string]any{}
	for i := range n {
		values[fmt.Sprint("k", i)] = value
	}
	return values
}

func labeled(n int) *unstructured.Unstructured {
	obj, labels := widget(map[string]any{}, nil), map[string]string{}
	for i := range n {
		labels[fmt.Sprint("-", i)] = "v"
	}
	obj.SetLabels(labels)
	return obj
}

// expectErrors fails the test unless the error is about n errors, of which the first begins
// with the text.
func expectErrors(t *testing.T, err error, n int, first string) {
	t.Helper()
	if !apierrors.IsInvalid(err) {
		t.Fatalf("got %v, want an invalid object", err)
	}
	status := err.(apierrors.APIStatus).Status()
	causes := status.Details.Causes
	if len(causes) != errorlimit.Max+1 {
		t.Fatalf("%d causes, want %d", len(causes), errorlimit.Max+1)
	}
	if got := causes[0].Field + ": " + causes[0].Message; !strings.HasPrefix(got, first) {
		t.Errorf("the first error is %q, want %q", got, first)
	}
	if want := fmt.Sprintf("and %d more errors of this object", n-errorlimit.Max); !strings.Contains(causes[errorlimit.Max].Message, want) {
		t.Errorf("the last cause is %q, want %q", causes[errorlimit.Max].Message, want)
	}
}

// What this package finds in a large object, the library finds, too.
func TestErrorsAreThoseOfTheLibrary(t *testing.T) {
	var props apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(widgets(t).Spec.Versions[0].Schema.OpenAPIV3Schema, &props, nil); err != nil {
		t.Fatal(err)
	}
	library, _, err := validation.NewSchemaValidator(&props)
	if err != nil {
		t.Fatal(err)
	}
	made := newValidator(widgets(t), "v1")
	if made.err != nil {
		t.Fatal(made.err)
	}
	for invalid := 0; invalid <= errorlimit.Max; invalid += 25 {
		obj := widget(map[string]any{"parts": parts(1000, invalid), "limits": mapOf(errorlimit.Max-invalid, int64(-1))}, nil)
		got, unlisted := made.errorsOf(t.Context(), obj, nil, "")
		want := validation.ValidateCustomResource(nil, obj.Object, library)
		if unlisted != 0 || !slices.Equal(texts(got), texts(want)) {
			t.Fatalf("%d invalid parts: got %q and %d, want %q", invalid, texts(got), unlisted, texts(want))
		}
	}
}

func texts[E error](errs []E) []string {
	var texts []string
	for _, err := range errs {
		texts = append(texts, err.Error())
	}
	slices.Sort(texts)
	return texts
}

func BenchmarkALargeValidObject(b *testing.B) {
	made := newValidator(widgets(b), "v1")
	obj := widget(map[string]any{"parts": parts(20_000, 0)}, nil)
	for b.Loop() {
		if errs, _ := made.errorsOf(b.Context(), obj, nil, ""); len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}
