package openapi

import (
	"math/rand"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/utils/clock"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"svc.dev/svc/apis"
	definitions "svc.dev/svc/apis/openapi"
	"svc.dev/svc/apis/resource"
)

// converters returns the package's converter of the kinds and the library's, which
// validates every object against the schema.
func converters(t testing.TB, kinds []*resource.Kind) (trusting, checking managedfields.TypeConverter) {
	t.Helper()
	docs := New("test", "1", definitions.Definitions, func() *runtime.Scheme { return apis.NewExternalScheme(kinds) }, clock.RealClock{})
	var models []string
	for _, k := range kinds {
		models = append(models, util.GetCanonicalTypeName(k.New()))
	}
	trusting = docs.TypeConverter(models...)
	made, err := trusting.(lazyConverter)()
	if err != nil {
		t.Fatal(err)
	}
	return trusting, made.(*trustingConverter).TypeConverter
}

func compare(c managedfields.TypeConverter, before, after runtime.Object) (*typed.Comparison, error) {
	a, err := c.ObjectToTyped(before, typed.AllowDuplicates)
	if err != nil {
		return nil, err
	}
	b, err := c.ObjectToTyped(after, typed.AllowDuplicates)
	if err != nil {
		return nil, err
	}
	return a.Compare(b)
}

func TestComparisonsAreTheSameWithoutValidation(t *testing.T) {
	kinds := apis.Kinds()
	trusting, checking := converters(t, kinds)
	scheme, err := apis.NewScheme(kinds)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		if !k.Stored() {
			continue
		}
		t.Run(k.Resource().String(), func(t *testing.T) {
			values := func(serializer.CodecFactory) []any {
				return []any{
					func(v *intstr.IntOrString, c randfill.Continue) { *v = intstr.FromInt32(c.Int31()) },
					func(v *runtime.RawExtension, _ randfill.Continue) { *v = runtime.RawExtension{Raw: []byte(`{"a":1}`)} },
				}
			}
			fill := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, values), rand.NewSource(1), serializer.NewCodecFactory(scheme)).NumElements(0, 3)
			for range 10 {
				empty, old, obj := k.New(), k.New(), k.New()
				fill.Fill(old)
				fill.Fill(obj)
				for _, o := range []runtime.Object{empty, old, obj} {
					o.GetObjectKind().SetGroupVersionKind(k.Hub)
				}
				for _, before := range []runtime.Object{empty, old} {
					want, refused := compare(checking, before, obj)
					got, err := compare(trusting, before, obj)
					if refused != nil || err != nil { // a list's element without its key
						if refused == nil || err == nil {
							t.Errorf("got %v\nwant %v", err, refused)
						}
						continue
					}
					if !got.Added.Equals(want.Added) || !got.Modified.Equals(want.Modified) || !got.Removed.Equals(want.Removed) {
						t.Errorf("got %s\nwant %s", got, want)
					}
				}
			}
		})
	}
}

func TestAListWithTwoElementsOfAKeyIsCompared(t *testing.T) {
	trusting, checking := converters(t, apis.Kinds())
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		Spec:     corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Env: []corev1.EnvVar{{Name: "x", Value: "1"}, {Name: "x", Value: "2"}}}}},
	}
	empty := &corev1.Pod{TypeMeta: pod.TypeMeta}
	want, err := compare(checking, empty, pod)
	if err != nil {
		t.Fatal(err)
	}
	got, err := compare(trusting, empty, pod)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Added.Equals(want.Added) {
		t.Errorf("got %s\nwant %s", got.Added, want.Added)
	}
}

func TestAnAppliedConfigurationIsValidatedAgainstTheSchema(t *testing.T) {
	trusting, _ := converters(t, apis.Kinds())
	applied := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "nonsense": "a"}}
	if _, err := trusting.ObjectToTyped(applied); err == nil {
		t.Error("a field that the schema does not have is accepted")
	}
	if _, err := trusting.ObjectToTyped(applied, typed.AllowDuplicates); err == nil {
		t.Error("a field that the schema does not have is accepted")
	}
}

func TestAKindWithoutASchemaIsAnError(t *testing.T) {
	trusting, _ := converters(t, apis.Kinds())
	stranger := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Stranger"}}
	if _, err := trusting.ObjectToTyped(stranger, typed.AllowDuplicates); err == nil {
		t.Error("it has a type")
	}
}

// BenchmarkTyped measures the comparison of the objects of a write.
func BenchmarkTyped(b *testing.B) {
	trusting, checking := converters(b, apis.Kinds())
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		Spec:     corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "i", Env: []corev1.EnvVar{{Name: "x", Value: "1"}, {Name: "y", Value: "2"}}}}},
	}
	empty := &corev1.Pod{TypeMeta: pod.TypeMeta}
	for name, c := range map[string]managedfields.TypeConverter{"unchecked": trusting, "checked": checking} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := compare(c, empty, pod); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
