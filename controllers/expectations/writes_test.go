package expectations

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// reader records the names of the objects that are read.
type reader struct {
	client.Reader
	read []string
	err  error
}

func (r *reader) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	r.read = append(r.read, key.Name)
	return r.err
}

func TestAwaitReadsTheWritesOfOneRequestOnce(t *testing.T) {
	var writes Writes
	request := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "a", Name: name} }
	add := func(owner, name string) {
		writes.Expect(request(owner), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}})
	}
	add("web", "web-1")
	add("web", "web-2")
	add("web", "web-1")
	add("db", "db-1")
	down := errors.New("cache is stopped")
	for _, tt := range []struct {
		rule, owner string
		err, want   error
		read        []string
	}{
		{"after an error the writes are still pending", "db", down, down, []string{"db-1"}},
		{"each object of the request is read once", "web", nil, nil, []string{"web-1", "web-2"}},
		{"a second Await reads nothing", "web", nil, nil, nil},
		{"a deleted object is not an error", "db", apierrors.NewNotFound(schema.GroupResource{}, "db-1"), nil, []string{"db-1"}},
		{"and is not read again", "db", nil, nil, nil},
	} {
		r := &reader{err: tt.err}
		err := writes.Await(t.Context(), r, request(tt.owner), &corev1.Pod{})
		slices.Sort(r.read)
		if pending := writes.Pending(request(tt.owner)); pending != (err != nil) {
			t.Errorf("%s: pending is %v", tt.rule, pending)
		}
		if !errors.Is(err, tt.want) || !slices.Equal(r.read, tt.read) {
			t.Errorf("%s: read %v, %v", tt.rule, r.read, err)
		}
	}
}
