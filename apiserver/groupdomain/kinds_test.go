package groupdomain

import (
	"bytes"
	"encoding/json"
	"math/rand"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authenticationv1beta1 "k8s.io/api/authentication/v1beta1"
	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	protobufserializer "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"svc.dev/svc/apis"
)

// filler fills objects at random, with names of groups of every sort.
func filler(seed int64) *randfill.Filler {
	groups := []string{"", "*", "apps", "storage.k8s.io", "example.com", "apps.host.svc.dev"}
	versions := []string{"v1", "apps/v1", "storage.k8s.io/v1", "example.com/v1beta1", "apps.host.svc.dev/v1", "core.host.svc.dev/v1"}
	f := randfill.NewWithSeed(seed).NilChance(.2).NumElements(1, 2).MaxDepth(14)
	pick := func(c randfill.Continue, from []string) string { return from[c.Intn(len(from))] }
	var fillGroups func(v reflect.Value, c randfill.Continue)
	fillGroups = func(v reflect.Value, c randfill.Continue) {
		switch v.Kind() {
		case reflect.Pointer, reflect.Interface:
			if !v.IsNil() {
				fillGroups(v.Elem(), c)
			}
		case reflect.Slice:
			for i := range v.Len() {
				fillGroups(v.Index(i), c)
			}
		case reflect.Struct:
			if v.Type() == reflect.TypeFor[metav1.TypeMeta]() {
				return // protobuf does not have that of a template
			}
			for i := range v.NumField() {
				field := v.Field(i)
				switch tag := v.Type().Field(i).Tag.Get("json"); {
				case field.Kind() == reflect.String && slices.Contains([]string{"apiVersion", "apiVersion,omitempty"}, tag):
					field.SetString(pick(c, versions))
				case slices.Contains([]string{"apiGroup", "apiGroup,omitempty", "apiGroups", "apiGroups,omitempty"}, tag):
					setGroups(field, func() string { return pick(c, groups) })
				default:
					fillGroups(field, c)
				}
			}
		}
	}
	return f.Funcs(
		func(o *metav1.ObjectMeta, c randfill.Continue) {
			o.Name = "name"
			o.OwnerReferences = []metav1.OwnerReference{{APIVersion: pick(c, versions), Kind: "K"}}
			o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", APIVersion: pick(c, versions)}}
		},
		func(t *metav1.Time, _ randfill.Continue) { *t = metav1.Unix(1, 0) },
		func(t *metav1.MicroTime, _ randfill.Continue) { *t = metav1.NewMicroTime(time.Unix(1, 0)) },
		func(t *intstr.IntOrString, _ randfill.Continue) { *t = intstr.FromInt32(1) },
		func(r *runtime.RawExtension, _ randfill.Continue) { r.Raw = []byte(`{"apiVersion":"v1"}`) },
		func(b *[]byte, _ randfill.Continue) { *b = []byte("bytes") },
		func(e *authenticationv1.ExtraValue, _ randfill.Continue) { *e = []string{"value"} },
		func(e *authorizationv1.ExtraValue, _ randfill.Continue) { *e = []string{"value"} },
		func(e *certificatesv1.ExtraValue, _ randfill.Continue) { *e = []string{"value"} },
		func(e *authenticationv1beta1.ExtraValue, _ randfill.Continue) { *e = []string{"value"} },
		func(e *authorizationv1beta1.ExtraValue, _ randfill.Continue) { *e = []string{"value"} },
		func(e *certificatesv1beta1.ExtraValue, _ randfill.Continue) { *e = []string{"value"} },
		func(s *string, c randfill.Continue) { *s = "text" },
		func(o *metav1.TypeMeta, _ randfill.Continue) {},
		func(o *metav1.LabelSelector, _ randfill.Continue) {},
		func(o *metav1.FieldsV1, _ randfill.Continue) {},
		func(v *refiller, c randfill.Continue) { fillGroups(v.Value, c) },
	)
}

// refiller is an object whose names of groups are to be filled.
type refiller struct{ reflect.Value }

func setGroups(field reflect.Value, pick func() string) {
	switch field.Kind() {
	case reflect.String:
		field.SetString(pick())
	case reflect.Pointer:
		if !field.IsNil() {
			field.Elem().SetString(pick())
		}
	case reflect.Slice:
		for i := range field.Len() {
			field.Index(i).SetString(pick())
		}
	}
}

// TestEveryKindIsTranslatedAlikeInJSONAndProtobuf also translates back, which must lose
// nothing.
func TestEveryKindIsTranslatedAlikeInJSONAndProtobuf(t *testing.T) {
	kinds := apis.Kinds()
	scheme, err := apis.NewScheme(kinds)
	if err != nil {
		t.Fatal(err)
	}
	seed := rand.Int63()
	for _, kind := range kinds {
		for _, gvk := range kind.GVKs() {
			obj, err := scheme.New(gvk)
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := obj.(interface{ Marshal() ([]byte, error) }); !ok {
				continue // metrics have no protobuf here
			}
			f := filler(seed)
			f.Fill(obj)
			f.Fill(&refiller{reflect.ValueOf(obj)})
			obj.GetObjectKind().SetGroupVersionKind(gvk)
			checkKind(t, seed, scheme, schema.GroupResource{Group: gvk.Group, Resource: kind.Name}, obj)
		}
	}
}

// checkKind translates an object to public names and back.
func checkKind(t *testing.T, seed int64, scheme *runtime.Scheme, gr schema.GroupResource, obj runtime.Object) {
	t.Helper()
	names, gvk := newNames(t), obj.GetObjectKind().GroupVersionKind()
	public := names.toWire().object(gr, reflect.TypeOf(obj))
	original := mustMarshal(t, obj)
	fromJSON := public.json(original, gvk.Kind)
	if bytes.Equal(original, fromJSON) {
		t.Errorf("seed %d: %s was not translated", seed, gvk)
	}
	stored := names.toStorage().object(gr, reflect.TypeOf(obj))
	if back := stored.json(fromJSON, gvk.Kind); !bytes.Equal(back, original) {
		t.Errorf("seed %d: %s came back otherwise: %s", seed, gvk, cmp.Diff(string(original), string(back)))
	}
	body, err := runtime.Encode(protobufserializer.NewSerializer(scheme, scheme), obj)
	if err != nil {
		t.Fatalf("seed %d: %s: %v", seed, gvk, err)
	}
	fromProtobuf, err := (&protobuf{scheme: scheme, root: public, stored: func(v string) string { return v }}).object(body)
	if err != nil {
		t.Fatalf("seed %d: %s: %v", seed, gvk, err)
	}
	first, second := emptyLike(obj), emptyLike(obj)
	mustUnmarshal(t, fromJSON, first)
	first.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	decodeProtobuf(t, fromProtobuf, second)
	if a, b := mustMarshal(t, first), mustMarshal(t, second); !bytes.Equal(a, b) {
		t.Errorf("seed %d: %s differs in JSON and in protobuf: %s", seed, gvk, cmp.Diff(string(a), string(b)))
	}
}

func emptyLike(obj runtime.Object) runtime.Object {
	return reflect.New(reflect.TypeOf(obj).Elem()).Interface().(runtime.Object)
}

func mustMarshal(t *testing.T, obj any) []byte {
	t.Helper()
	text, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func mustUnmarshal(t *testing.T, text []byte, obj any) {
	t.Helper()
	if err := json.Unmarshal(text, obj); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// decodeProtobuf reads an object whose envelope names a type of the domain.
func decodeProtobuf(t *testing.T, body []byte, obj runtime.Object) {
	t.Helper()
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(body[len(magic):]); err != nil {
		t.Fatal(err)
	}
	if err := obj.(interface{ Unmarshal([]byte) error }).Unmarshal(unknown.Raw); err != nil {
		t.Fatal(err)
	}
}
