package core

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"svc.dev/svc/apis/resource"
)

func TestComponentStatusesTellHowEtcdIs(t *testing.T) {
	for _, test := range []struct {
		etcd error
		want string
	}{
		{nil, "[etcd-0 Healthy ok ]"},
		{errors.New("etcd does not answer"), "[etcd-0 Unhealthy  etcd does not answer]"},
	} {
		env := &resource.Env{Etcd: func(context.Context) error { return test.etcd }}
		s, err := componentStatuses.Get(t.Context(), env, "", "etcd-0")
		if err != nil {
			t.Fatal(err)
		}
		var row []any
		for _, c := range componentStatuses.Columns {
			row = append(row, c.Value(s))
		}
		if got := fmt.Sprint(row); got != test.want {
			t.Errorf("got %s, want %s", got, test.want)
		}
	}
}

func TestComponentStatusesAreOfEtcdAlone(t *testing.T) {
	env := &resource.Env{Etcd: func(context.Context) error { return nil }}
	if _, err := componentStatuses.Get(t.Context(), env, "", "scheduler"); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want that there is no such component", err)
	}
	for selector, want := range map[string]int{"": 1, "metadata.name=etcd-0": 1, "metadata.name=scheduler": 0} {
		found, err := componentStatuses.List(t.Context(), env, resource.Selection{Labels: labels.Everything(), Fields: fields.ParseSelectorOrDie(selector)})
		if err != nil || len(found) != want {
			t.Errorf("%q selects %d, %v, want %d", selector, len(found), err, want)
		}
	}
}
