package registry

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/storage"

	"svc.dev/svc/apis"
	"svc.dev/svc/apis/resource"
)

// A node agent's watch is woken only by the pods of its node, and its list
// reads no others.
func TestSelectorsOfTheWatchFieldUseItsIndex(t *testing.T) {
	for _, test := range []struct{ kind, selector, index, value string }{
		{"pods", "spec.nodeName=a", "f:spec.nodeName", "a"},
		{"nodes", "metadata.name=a", "f:metadata.name", "a"},
		{"pods", "status.phase=Running", "", ""},
		{"pods", "spec.nodeName!=a", "", ""},
	} {
		kinds := apis.Kinds()
		kind := kinds[slices.IndexFunc(kinds, func(k *resource.Kind) bool { return k.Name == test.kind })]
		var want []storage.MatchValue
		if test.index != "" {
			want = []storage.MatchValue{{IndexName: test.index, Value: test.value}}
		}
		p := predicate(kind)(labels.Everything(), fields.ParseSelectorOrDie(test.selector))
		if got := p.MatcherIndex(t.Context()); !slices.Equal(got, want) {
			t.Errorf("%s by %s: the index is read for %v, want %v", test.kind, test.selector, got, want)
		}
	}
}

// Lists by the selectors above read from this index.
func TestTheCacheHasAnIndexOfTheWatchField(t *testing.T) {
	for _, test := range []struct{ kind, index string }{{"pods", "f:spec.nodeName"}, {"nodes", ""}} {
		kinds := apis.Kinds()
		kind := kinds[slices.IndexFunc(kinds, func(k *resource.Kind) bool { return k.Name == test.kind })]
		byField, err := trigger(kind)
		if err != nil {
			t.Fatal(err)
		}
		made := indexers(kind, byField)
		if test.index == "" {
			if made != nil {
				t.Errorf("%s, whose names are keys, have the indexes %v", test.kind, made)
			}
			continue
		}
		values, err := (*made)[test.index](&corev1.Pod{Spec: corev1.PodSpec{NodeName: "a"}})
		if err != nil || !slices.Equal(values, []string{"a"}) {
			t.Errorf("%s: got %q, %v, want a", test.kind, values, err)
		}
		if _, err := (*made)[test.index]("odd"); err == nil {
			t.Errorf("%s: no error for a value that is not an object", test.kind)
		}
	}
}
