package storage

import (
	"bytes"
	"encoding/json"
	"math/rand"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"svc.dev/svc/apis"
	"svc.dev/svc/apis/resource"
)

// protobufPrefix begins an object that is stored as protobuf (document 1,
// section 2).
var protobufPrefix = []byte{'k', '8', 's', 0}

func codecOf(t *testing.T, kinds []*resource.Kind) (*runtime.Scheme, runtime.Codec) {
	t.Helper()
	scheme, err := apis.NewScheme(kinds)
	if err != nil {
		t.Fatal(err)
	}
	codec, _ := KindCodec(scheme, kinds)
	return scheme, codec
}

// fuzzerOf fills objects as clients could.
func fuzzerOf(scheme *runtime.Scheme, seed int64) *randfill.Filler {
	values := func(serializer.CodecFactory) []any {
		return []any{
			func(v *intstr.IntOrString, c randfill.Continue) {
				if *v = intstr.FromInt32(c.Int31()); c.Bool() {
					*v = intstr.FromString(c.String(5))
				}
			},
			func(v *metav1.MicroTime, c randfill.Continue) {
				*v = metav1.NewMicroTime(metav1.Unix(c.Int63n(1<<32), 0).Local())
			},
			func(v *runtime.RawExtension, _ randfill.Continue) { *v = runtime.RawExtension{Raw: []byte(`{"a":1}`)} },
		}
	}
	return fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, values), rand.NewSource(seed), serializer.NewCodecFactory(scheme)).
		NumElements(1, 2) // protobuf encodes an empty list like a nil one
}

func TestEveryKindIsStoredAsProtobufOfItsHubAndReadBackEqual(t *testing.T) {
	kinds := apis.Kinds()
	scheme, codec := codecOf(t, kinds)
	for _, k := range kinds {
		if !k.Stored() {
			continue
		}
		t.Run(k.Resource().String(), func(t *testing.T) {
			for seed := range int64(20) {
				obj := k.New()
				fuzzerOf(scheme, seed).Fill(obj)
				k.Default(obj)
				data, err := runtime.Encode(codec, obj)
				if err != nil {
					t.Fatal(err)
				}
				unknown := runtime.Unknown{}
				if !bytes.HasPrefix(data, protobufPrefix) || unknown.Unmarshal(data[len(protobufPrefix):]) != nil {
					t.Fatalf("not protobuf: %q", data)
				}
				if got := unknown.GroupVersionKind(); got != k.Hub {
					t.Errorf("stored as %s, the hub is %s", got, k.Hub)
				}
				back, err := runtime.Decode(codec, data)
				if err != nil {
					t.Fatal(err)
				}
				if !apiequality.Semantic.DeepEqual(obj, back) {
					t.Errorf("seed %d: stored %s\nread %s", seed, asJSON(t, obj), asJSON(t, back))
				}
			}
		})
	}
}

func asJSON(t *testing.T, obj any) string {
	t.Helper()
	data, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Objects in memory have neither apiVersion nor kind, however they were decoded.
func TestADecodedObjectHasNoType(t *testing.T) {
	_, codec := codecOf(t, apis.Kinds())
	data, err := runtime.Encode(codec, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	for rule, into := range map[string]runtime.Object{"into a new object": nil, "into a given object": &corev1.ConfigMap{}} {
		t.Run(rule, func(t *testing.T) {
			obj, stored, err := codec.Decode(data, nil, into)
			if err != nil {
				t.Fatal(err)
			}
			if got := obj.(*corev1.ConfigMap); got.Name != "a" || got.TypeMeta != (metav1.TypeMeta{}) {
				t.Errorf("read %#v", got)
			}
			if want := corev1.SchemeGroupVersion.WithKind("ConfigMap"); *stored != want {
				t.Errorf("it was stored as %s, want %s", stored, want)
			}
		})
	}
}

func TestAListIsEncodedAsItsHub(t *testing.T) {
	_, codec := codecOf(t, apis.Kinds())
	list := &corev1.ConfigMapList{Items: []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}}
	data, err := runtime.Encode(codec, list)
	if err != nil {
		t.Fatal(err)
	}
	back, err := runtime.Decode(codec, data)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := back.(*corev1.ConfigMapList); !ok || len(got.Items) != 1 || got.Items[0].Name != "a" {
		t.Errorf("read back %#v", back)
	}
}

func TestObjectsThatAreStoredAsJSONAreDecoded(t *testing.T) {
	_, codec := codecOf(t, apis.Kinds())
	for rule, doc := range map[string]string{
		"in the hub's version": `{"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"}, "involvedObject": {"name": "p"}}`,
		"in another version":   `{"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "a"}, "regarding": {"name": "p"}}`,
	} {
		t.Run(rule, func(t *testing.T) {
			obj, err := runtime.Decode(codec, []byte(doc))
			if err != nil {
				t.Fatal(err)
			}
			if event, ok := obj.(*corev1.Event); !ok || event.Name != "a" || event.InvolvedObject.Name != "p" {
				t.Errorf("read %#v", obj)
			}
		})
	}
}

func TestAnotherVersionIsStoredAsTheHub(t *testing.T) {
	_, codec := codecOf(t, apis.Kinds())
	data, err := runtime.Encode(codec, &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Regarding: corev1.ObjectReference{Name: "p"}})
	if err != nil {
		t.Fatal(err)
	}
	obj, err := runtime.Decode(codec, data)
	if err != nil {
		t.Fatal(err)
	}
	if event, ok := obj.(*corev1.Event); !ok || event.InvolvedObject.Name != "p" {
		t.Errorf("read %#v", obj)
	}
}

func TestInvalidStoredDataIsAnError(t *testing.T) {
	_, codec := codecOf(t, apis.Kinds())
	whole, err := runtime.Encode(codec, &corev1.ConfigMap{Data: map[string]string{"key": "value"}})
	if err != nil {
		t.Fatal(err)
	}
	for rule, data := range map[string][]byte{
		"nothing":            nil,
		"garbage":            []byte("garbage"),
		"truncated protobuf": whole[:len(whole)-3],
		"an unknown kind":    []byte(`{"apiVersion": "v1", "kind": "Nothing"}`),
		"no kind":            []byte(`{}`),
	} {
		t.Run(rule, func(t *testing.T) {
			if obj, err := runtime.Decode(codec, data); err == nil {
				t.Errorf("read %#v", obj)
			}
		})
	}
}
