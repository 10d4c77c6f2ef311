package customvalidation

import (
	"math/rand"
	"slices"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/apiserver/errorlimit"
)

// branchSchema has lists with branches, alone and within each other.
const branchSchema = `
type: object
properties:
  spec:
    type: object
    properties:
      fill: {type: array, items: {type: integer}}
      any: {type: array, items: {type: string}, anyOf: [{items: {pattern: "^a"}}, {items: {maxLength: 1}}, {maxItems: 1}]}
      one: {type: array, items: {type: string}, oneOf: [{items: {pattern: "^a"}}, {items: {maxLength: 1}}, {maxItems: 1}]}
      all: {type: array, items: {type: string}, allOf: [{items: {pattern: "^a"}}, {items: {maxLength: 1}}, {maxItems: 1}]}
      not: {type: array, items: {type: string}, not: {items: {maxLength: 1}}}
      port: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}
      nested:
        type: object
        additionalProperties: {type: array, nullable: true, items: {type: string, oneOf: [{pattern: "a"}, {maxLength: 1}]}}
        anyOf:
        - oneOf: [{required: [a]}, {additionalProperties: {minItems: 2}}]
        - allOf: [{required: [b]}, {not: {required: [c]}}]
`

// branched returns the definition of widgets with branchSchema.
func branched(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	definition := widgets(t)
	var props apiextensionsv1.JSONSchemaProps
	if err := yaml.Unmarshal([]byte(branchSchema), &props); err != nil {
		t.Fatal(err)
	}
	definition.Spec.Versions[0].Schema.OpenAPIV3Schema = &props
	return definition
}

// branchedWidget returns a large object, whose other values are random.
func branchedWidget(random *rand.Rand) *unstructured.Unstructured {
	list := func() any {
		return many(random.Intn(4), func(int) any { return []string{"", "a", "b", "aa", "bb"}[random.Intn(5)] })
	}
	spec := map[string]any{"fill": many(large, func(int) any { return int64(1) })}
	for _, name := range []string{"any", "one", "all", "not"} {
		if random.Intn(2) == 0 {
			spec[name] = list()
		}
	}
	spec["port"] = []any{int64(1), "a", true}[random.Intn(3)]
	nested := map[string]any{}
	for _, name := range []string{"a", "b", "c"} {
		switch random.Intn(3) {
		case 0:
			nested[name] = list()
		case 1:
			nested[name] = nil
		}
	}
	spec["nested"] = nested
	return widget(spec, nil)
}

func TestErrorsOfBranchesAreThoseOfTheLibrary(t *testing.T) {
	definition := branched(t)
	var props apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(definition.Spec.Versions[0].Schema.OpenAPIV3Schema, &props, nil); err != nil {
		t.Fatal(err)
	}
	library, _, err := validation.NewSchemaValidator(&props)
	if err != nil {
		t.Fatal(err)
	}
	made := newValidator(definition, "v1")
	if made.err != nil {
		t.Fatal(made.err)
	}
	random := rand.New(rand.NewSource(1)) //nolint:gosec // a test
	valid := 0
	for range 100 {
		obj := branchedWidget(random)
		got, unlisted := made.errorsOf(t.Context(), obj, nil, "")
		want := validation.ValidateCustomResource(nil, obj.Object, library)
		if unlisted != 0 || !slices.Equal(texts(got), texts(want)) {
			delete(obj.Object["spec"].(map[string]any), "fill")
			t.Fatalf("%v: got %q and %d, want %q", obj.Object["spec"], texts(got), unlisted, texts(want))
		}
		if len(want) == 0 {
			valid++
		}
	}
	if valid == 0 || valid == 100 {
		t.Errorf("%d of 100 objects are valid", valid)
	}
}

func TestVeryManyErrorsOfBranchesAreCounted(t *testing.T) {
	made := newValidator(branched(t), "v1")
	if made.err != nil {
		t.Fatal(made.err)
	}
	const n = 20_000
	for name, errors := range map[string]int{"any": n + 1, "one": n + 1, "all": 2*n + 2} {
		obj := widget(map[string]any{name: many(n, func(int) any { return "long" })}, nil)
		errs, unlisted := made.errorsOf(t.Context(), obj, nil, "")
		if got := len(errs) + unlisted; len(errs) != errorlimit.Max+1 || got != errors {
			t.Errorf("%s: %d of %d errors are listed, want %d of %d", name, len(errs), got, errorlimit.Max+1, errors)
		}
	}
}
