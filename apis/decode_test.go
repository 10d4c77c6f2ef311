package apis

import (
	"os"
	"strings"
	"testing"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"sigs.k8s.io/yaml"
)

// FuzzDecode: whatever body a client sends, in JSON, YAML or protobuf, decoding
// and defaulting it does not panic, and what came out is what etcd gives back.
// The seeds are the end-to-end suite's objects of every kind.
func FuzzDecode(f *testing.F) {
	scheme, err := NewScheme(Kinds())
	if err != nil {
		f.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme).UniversalDecoder()
	stored := protobuf.NewSerializer(scheme, scheme)

	manifests, err := os.ReadFile("../test/e2e/testdata/kinds.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for document := range strings.SplitSeq(string(manifests), "\n---\n") {
		f.Add([]byte(document))
		if asJSON, err := yaml.YAMLToJSON([]byte(document)); err == nil {
			f.Add(asJSON)
		}
		if obj, _, err := decoder.Decode([]byte(document), nil, nil); err == nil {
			body, err := runtime.Encode(stored, withKind(scheme, obj))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(body)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		obj, _, err := decoder.Decode(body, nil, nil)
		if err != nil {
			return
		}
		obj = withKind(scheme, obj)
		kept, err := runtime.Encode(stored, obj)
		if err != nil {
			return // lists and options of the internal version, which are not stored
		}
		back, _, err := stored.Decode(kept, nil, nil)
		if err != nil {
			t.Fatalf("%T cannot be read back: %v", obj, err)
		}
		scheme.Default(back)
		if !apiequality.Semantic.DeepEqual(obj, withKind(scheme, back)) {
			t.Errorf("%T was\n%#v\nand came back as\n%#v", obj, obj, back)
		}
	})
}

// withKind sets the kind that the object's Go type has outside of memory.
func withKind(scheme *runtime.Scheme, obj runtime.Object) runtime.Object {
	gvks, _, err := scheme.ObjectKinds(obj)
	if err != nil {
		return obj
	}
	for _, gvk := range gvks {
		if gvk.Version != runtime.APIVersionInternal {
			obj.GetObjectKind().SetGroupVersionKind(gvk)
			return obj
		}
	}
	return obj
}
