package garbagecollector

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
)

// asked records the options of lists.
type asked struct {
	metadata.ResourceInterface
	options []metav1.ListOptions
}

func (a *asked) List(_ context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	a.options = append(a.options, options)
	return &metav1.PartialObjectMetadataList{}, nil
}

func TestMonitorListsTheNewestState(t *testing.T) {
	objects := &asked{}
	m := &monitor{objects: objects}
	for _, options := range []metav1.ListOptions{
		{Limit: 500, ResourceVersion: "0"},
		{Limit: 500, ResourceVersion: "84"},
		{Limit: 500, ResourceVersion: "84", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan},
		{Limit: 500, Continue: "more"},
	} {
		if _, err := m.ListWithContext(t.Context(), options); err != nil {
			t.Fatal(err)
		}
		want := metav1.ListOptions{Limit: 500, Continue: options.Continue}
		if got := objects.options[len(objects.options)-1]; got != want {
			t.Errorf("asked for %+v\ngot %+v, want %+v", options, got, want)
		}
	}
}
