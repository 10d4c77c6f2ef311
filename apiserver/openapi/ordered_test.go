package openapi

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"svc.dev/svc/apis"
)

// configMap returns a ConfigMap with n keys.
func configMap(n int) *corev1.ConfigMap {
	m := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Data: map[string]string{}}
	for i := range n {
		m.Data[fmt.Sprintf("a-rather-long-key-of-a-large-object-%d", i)] = "value"
	}
	return m
}

func untyped(t *testing.T, obj runtime.Object) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

// To insert keys in a random order takes time quadratic in their number.
func TestKeysOfLargeMapsAreComparedInTheirOrder(t *testing.T) {
	trusting, _ := converters(t, apis.Kinds())
	large := configMap(2 * largeMap)
	for name, obj := range map[string]runtime.Object{"stored": large, "applied": untyped(t, large)} {
		options := map[string][]typed.ValidationOptions{"stored": {typed.AllowDuplicates}}[name]
		converted, err := trusting.ObjectToTyped(obj, options...)
		if err != nil {
			t.Fatal(err)
		}
		empty, err := trusting.ObjectToTyped(configMap(0), typed.AllowDuplicates)
		if err != nil {
			t.Fatal(err)
		}
		data := func(v *typed.TypedValue) value.Map {
			got, ok := v.AsValue().AsMap().Get("data")
			if !ok {
				return nil
			}
			return got.AsMap()
		}
		var keys []string
		collect := func(key string, _, _ value.Value) bool {
			keys = append(keys, key)
			return true
		}
		for way, iterate := range map[string]func(){
			"alone":             func() { data(converted).Iterate(func(key string, v value.Value) bool { return collect(key, v, nil) }) },
			"with an older one": func() { value.MapZip(data(empty), data(converted), value.Unordered, collect) },
			"with a newer one":  func() { value.MapZip(data(converted), data(empty), value.Unordered, collect) },
			"with itself":       func() { value.MapZip(data(converted), data(converted), value.Unordered, collect) },
		} {
			keys = nil
			iterate()
			if len(keys) != 2*largeMap || !slices.IsSorted(keys) {
				t.Errorf("%s, %s: %d keys, sorted: %v", name, way, len(keys), slices.IsSorted(keys))
			}
		}
	}
}

func TestComparisonsOfLargeObjectsAreTheSame(t *testing.T) {
	trusting, checking := converters(t, apis.Kinds())
	small, large, changed := configMap(3), configMap(2*largeMap), configMap(2*largeMap-2)
	changed.Data["another"], changed.Labels = "new", map[string]string{"a": "b"}
	changed.Finalizers = []string{"b", "a"}
	for key := range large.Data {
		changed.Data[key] = "changed"
		break
	}
	objects := map[string]runtime.Object{"small": small, "large": large, "changed": changed, "untyped": untyped(t, changed)}
	for before := range objects {
		for after := range objects {
			got, err := compare(trusting, objects[before], objects[after])
			if err != nil {
				t.Fatal(err)
			}
			want, err := compare(checking, objects[before], objects[after])
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != want.String() {
				t.Errorf("%s to %s: the comparisons differ", before, after)
			}
		}
	}
	a, err := trusting.ObjectToTyped(untyped(t, large))
	if err != nil {
		t.Fatal(err)
	}
	b, err := trusting.ObjectToTyped(untyped(t, changed))
	if err != nil {
		t.Fatal(err)
	}
	merged, err := a.Merge(b)
	if err != nil {
		t.Fatal(err)
	}
	if got := merged.AsValue().Unstructured().(map[string]any)["data"].(map[string]any); len(got) != 2*largeMap+1 || got["another"] != "new" {
		t.Errorf("the merged map has %d keys", len(got))
	}
	if _, err := merged.ToFieldSet(); err != nil {
		t.Error(err)
	}
}
