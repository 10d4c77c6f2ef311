package controllers

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
)

func TestAFirstListIsOfTheNewestStateAndALaterOneNoOlderThanWhatWasSeen(t *testing.T) {
	var asked []string
	lister := newest{with: &toolscache.ListWatch{ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
		asked = append(asked, o.ResourceVersion)
		return nil, nil
	}}}
	for _, version := range []string{"0", "7", ""} {
		if _, err := lister.ListWithContext(t.Context(), metav1.ListOptions{ResourceVersion: version}); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"", "7", ""}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
}
