package patcherror

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// undecodable is the library's error for an object that a patch has spoilt.
func undecodable(object, reason string) error {
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), object, reason)})
}

// inapplicable is the library's error for a patch that cannot be applied.
func inapplicable() error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", "dropped", 0, false)
}

// asIs shows objects in the version in which they are stored.
func asIs(current runtime.Object) (runtime.Object, error) { return current, nil }

func TestAnOperationIsAppliedToTheObjectThatTheClientSees(t *testing.T) {
	patch := `[{"op":"test","path":"/kind","value":"Deployment"},{"op":"remove","path":"/metadata/labels/b"}]`
	current := &appsv1.Deployment{}
	seen := func(runtime.Object) (runtime.Object, error) {
		return &appsv1.Deployment{TypeMeta: metav1.TypeMeta{Kind: "Deployment"}}, nil
	}
	err := Explain(WithPatch(t.Context(), types.JSONPatchType, []byte(patch), seen), inapplicable(), current)
	if want := `operation 1 of the patch, remove "/metadata/labels/b", failed: `; !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	notSeen := func(runtime.Object) (runtime.Object, error) { return nil, errors.New("not convertible") }
	given := inapplicable()
	if err := Explain(WithPatch(t.Context(), types.JSONPatchType, []byte(patch), notSeen), given, current); !errors.Is(err, given) {
		t.Errorf("the error is explained without the object that the client sees: %v", err)
	}
}

func TestExplain(t *testing.T) {
	_, notANumber := strconv.ParseUint("abc", 10, 64)
	other := apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "Deployment"}, "d", field.ErrorList{field.Invalid(field.NewPath("patch"), 1, "no")})
	for _, test := range []struct {
		rule      string
		mediaType types.PatchType
		patch     string
		err       error
		code      int32 // 0 if the error stays
		message   string
	}{
		{
			"a wrong type is 400 and names the field only", types.MergePatchType, `{}`,
			undecodable(`{"a":"secret \" quoted"}`, "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"),
			400, "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
		},
		{
			"an unknown field is 400", types.MergePatchType, `{}`,
			undecodable(`{}`, `strict decoding error: unknown field "spec.foo"`), 400, `strict decoding error: unknown field "spec.foo"`,
		},
		{
			"a wrong type in a strategic merge patch names the field", types.StrategicMergePatchType, `{"spec":{"replicas":"many"}}`,
			undecodable(`map[]`, "unrecognized type: int32"), 400, "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
		},
		{
			"an unknown field in a strategic merge patch", types.StrategicMergePatchType, `{"spec":{"replicas":"many"}}`,
			undecodable(`map[]`, `strict decoding error: unknown field "spec.foo"`), 400, `strict decoding error: unknown field "spec.foo"`,
		},
		{
			"a JSON patch says which operation failed and why", types.JSONPatchType,
			`[{"op":"add","path":"/metadata/labels","value":{}},{"op":"remove","path":"/metadata/labels/b"}]`,
			inapplicable(), 422, `operation 1 of the patch, remove "/metadata/labels/b", failed: `,
		},
		{
			"of several operations that fail, a JSON patch names the first", types.JSONPatchType,
			`[{"op":"test","path":"/metadata/name","value":"d"},{"op":"test","path":"/metadata/name","value":"e"},{"op":"remove","path":"/b"},{"op":"test","path":"/metadata/name","value":"d"}]`,
			inapplicable(), 422, `operation 1 of the patch, test "/metadata/name", failed: `,
		},
		{
			"a JSON patch without a path", types.JSONPatchType, `[{"op":"remove"}]`,
			inapplicable(), 422, `operation 0 of the patch, remove "unknown", failed: `,
		},
		{"a JSON patch that applies to this version", types.JSONPatchType, `[]`, inapplicable(), 0, ""},
		{"another patch that cannot be applied", types.StrategicMergePatchType, `{}`, inapplicable(), 0, ""},
		{"a version that is no number", types.MergePatchType, `{}`, notANumber, 400, `metadata.resourceVersion: Invalid value: "abc": must be a version`},
		{
			"an apply that does not match the schema", types.ApplyYAMLPatchType, `{}`,
			errors.New(untypedPatch + " (a/b; /v1): .data: expected map"), 400, untypedPatch + " (a/b; /v1): .data: expected map",
		},
		{
			"an applied value that cannot be decoded", types.ApplyYAMLPatchType, `{}`,
			errors.New("failed to convert new object (/d; v1) to proper version: " + undecodableValue + "v1: quantities must match"), 400, "failed to convert new object (/d; v1)",
		},
		{"an invalid $patch", types.StrategicMergePatchType, `{}`, errors.New(unknownDirective + "bogus in map: map[]"), 400, unknownDirective + "bogus"},
		{"words of a strategic merge patch in another request stay", types.MergePatchType, `{}`, errors.New(wrongDirective + "X, but received a Y"), 0, ""},
		{"an invalid object stays", types.MergePatchType, `{}`, other, 0, ""},
		{"other errors stay", types.MergePatchType, `{}`, errors.New("other"), 0, ""},
	} {
		t.Run(test.rule, func(t *testing.T) {
			current := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d"}}
			got := Explain(WithPatch(t.Context(), test.mediaType, []byte(test.patch), asIs), test.err, current)
			if test.code == 0 {
				if !errors.Is(got, test.err) {
					t.Fatalf("got %v, want the same error", got)
				}
				return
			}
			var answered apierrors.APIStatus
			if !errors.As(got, &answered) || answered.Status().Code != test.code || !strings.HasPrefix(answered.Status().Message, test.message) {
				t.Errorf("got %#v, want code %d and %q", got, test.code, test.message)
			}
		})
	}
}

func TestAStrategicMergePatchThatDoesNotFitIsABadRequest(t *testing.T) {
	current := `{"metadata":{"finalizers":["c"]},"spec":{"template":{"spec":{"containers":[{"name":"a","image":"secret"}]}}}}`
	for patch, message := range map[string]string{
		`{"spec":{"template":{"spec":{"containers":[{"image":"x"}]}}}}`:         "an element of a list does not contain declared merge key: name",
		`{"spec":{"template":{"spec":{"containers":[5]}}}}`:                     "list element types are not identical",
		`{"metadata":{"$setElementOrder/finalizers":1}}`:                        "expected a []interface {}, but received a int64",
		`{"metadata":{"$setElementOrder/finalizers":["a"],"finalizers":["b"]}}`: "The order in patch list: [b] doesn't match $setElementOrder list: [a]",
		`{"$setElementOrder/":["a"]}`:                                           `unable to find api field in struct Deployment for the json field ""`,
	} {
		_, err := strategicpatch.StrategicMergePatch([]byte(current), []byte(patch), appsv1.Deployment{})
		if err == nil {
			t.Errorf("%s fits", patch)
			continue
		}
		got := Explain(WithPatch(t.Context(), types.StrategicMergePatchType, []byte(patch), asIs), err, &appsv1.Deployment{})
		if !apierrors.IsBadRequest(got) || got.Error() != message {
			t.Errorf("%s: got %v, want a bad request: %s", patch, got, message)
		}
	}
}
