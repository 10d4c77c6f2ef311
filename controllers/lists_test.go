package controllers

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
)

func TestFirstListIsAConsistentRead(t *testing.T) {
	var requested []string
	lister := consistent{with: &toolscache.ListWatch{ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
		requested = append(requested, o.ResourceVersion+o.FieldSelector)
		return nil, nil
	}}, selector: fields.OneTermEqualSelector("type", "a")}
	for _, version := range []string{"0", "7", ""} {
		if _, err := lister.ListWithContext(t.Context(), metav1.ListOptions{ResourceVersion: version}); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"type=a", "7type=a", "type=a"}; !slices.Equal(requested, want) {
		t.Errorf("requested for %q, want %q", requested, want)
	}
}
