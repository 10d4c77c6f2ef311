package apis

import (
	"bytes"
	"fmt"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/resource/resourcetest"
)

func TestSchemeKnowsAllKinds(t *testing.T) {
	kinds := Kinds()
	s, err := NewScheme(kinds)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, k := range kinds {
		if name := k.Resource().String(); seen[name] {
			t.Errorf("%s is declared twice", name)
		} else {
			seen[name] = true
		}
		for _, gvk := range k.GVKs() {
			if !s.Recognizes(gvk) {
				t.Errorf("the scheme does not know %s", gvk)
			}
		}
	}
}

// FuzzKinds: no object makes defaulting, validation or the table view panic. The
// seed 0 is the empty object.
func FuzzKinds(f *testing.F) {
	for seed := range int64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed int64) {
		for _, k := range Kinds() {
			if !k.Stored() {
				continue // has none of these functions
			}
			obj, old := k.New(), k.New()
			if seed != 0 {
				fill(obj, seed)
				fill(old, seed+1)
			}
			exercise(t, k, obj, old)
		}
	})
}

// exercise calls the functions of a kind that the server calls.
func exercise(t *testing.T, k *resource.Kind, obj, old runtime.Object) {
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("%s: %v\n%s", k.Resource(), r, debug.Stack())
		}
	}()
	k.Default(obj)
	k.Default(old)
	for _, c := range k.Columns {
		_ = fmt.Sprint(c.Cell(obj, resourcetest.Now))
	}
	for _, value := range k.Fields {
		_ = value(obj)
	}
	created := obj.DeepCopyObject()
	env := resourcetest.Env()
	k.PrepareCreate(t.Context(), env, created)
	_ = append(k.Validate(created), k.Restrict(env, created)...).ToAggregate()
	updated := obj.DeepCopyObject()
	k.PrepareUpdate(t.Context(), env, updated, old)
	_ = append(k.Validate(updated), k.ValidateUpdate(updated, old)...).ToAggregate()
	status := obj.DeepCopyObject()
	k.PrepareStatus(env, status, old)
	_ = append(k.ValidateStatus(status, old), k.RestrictStatus(env, status, old)...).ToAggregate()
	for _, v := range k.Views {
		view := obj.DeepCopyObject()
		v.Prepare(env, view, old)
		_ = v.Validate(view, old).ToAggregate()
	}
}

// fill fills an object from a seed, with pointers unset now and then.
func fill(obj runtime.Object, seed int64, more ...any) {
	randfill.NewWithSeed(seed).NilChance(0.3).NumElements(0, 3).MaxDepth(12).Funcs(
		func(_ *metav1.TypeMeta, _ randfill.Continue) {},
		func(f *metav1.FieldsV1, _ randfill.Continue) { *f = *metav1.NewFieldsV1("{}") },
		func(r *runtime.RawExtension, _ randfill.Continue) { r.Raw = []byte("{}") },
		func(q *apiresource.Quantity, c randfill.Continue) {
			*q = *apiresource.NewQuantity(c.Int63n(1000)-500, apiresource.DecimalSI)
		},
		func(v *intstr.IntOrString, c randfill.Continue) {
			*v = intstr.FromInt32(c.Int31n(1000) - 500)
			if c.Bool() {
				*v = intstr.FromString(c.String(0))
			}
		},
	).Funcs(more...).Fill(obj)
}

func TestTheGroupsAreInTheOrderOfKubernetes(t *testing.T) {
	want := []string{
		"", "apps", "authentication.k8s.io", "authorization.k8s.io", "autoscaling", "batch", "certificates.k8s.io", "networking.k8s.io", "policy", "rbac.authorization.k8s.io",
		"storage.k8s.io", "admissionregistration.k8s.io", "scheduling.k8s.io", "coordination.k8s.io", "node.k8s.io", "discovery.k8s.io",
		"flowcontrol.apiserver.k8s.io", "resource.k8s.io", "internal.apiserver.k8s.io", "storagemigration.k8s.io", "lifecycle.k8s.io", "metrics.k8s.io",
	}
	var got []string
	for _, k := range Kinds() {
		if !slices.Contains(got, k.Hub.Group) {
			got = append(got, k.Hub.Group)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// FuzzFormats: an object of every kind is the same after JSON, protobuf and CBOR.
func FuzzFormats(f *testing.F) {
	kinds := Kinds()
	scheme, err := NewScheme(kinds)
	if err != nil {
		f.Fatal(err)
	}
	formats := map[string]runtime.Serializer{
		"JSON":     json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Strict: true}),
		"protobuf": protobuf.NewSerializer(scheme, scheme),
		"CBOR":     cbor.NewSerializer(scheme, scheme, cbor.Strict(true)),
	}
	for seed := range int64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed int64) {
		for _, k := range kinds {
			obj := k.New()
			if seed != 0 {
				fill(obj, seed)
			}
			obj.GetObjectKind().SetGroupVersionKind(k.GVKs()[0])
			for name, format := range formats {
				var encoded bytes.Buffer
				if err := format.Encode(obj, &encoded); err != nil {
					t.Errorf("%s: encode in %s: %v", k.Resource(), name, err)
					continue
				}
				decoded, _, err := format.Decode(encoded.Bytes(), nil, k.New())
				if err != nil {
					t.Errorf("%s: decode %s: %v", k.Resource(), name, err)
					continue
				}
				decoded.GetObjectKind().SetGroupVersionKind(k.GVKs()[0]) // protobuf has it in the envelope
				if !equality.Semantic.DeepEqual(obj, decoded) {
					t.Errorf("%s: %s changes it:\n%s", k.Resource(), name, cmp.Diff(obj, decoded))
				}
			}
		}
	})
}
