package written

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

// reader notes what is read.
type reader struct {
	client.Reader
	read []string
	err  error
}

func (r *reader) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	r.read = append(r.read, key.Name)
	return r.err
}

func TestEachRequestWaitsOnceForItsOwn(t *testing.T) {
	var objects Objects
	request := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "a", Name: name} }
	add := func(owner, name string) {
		objects.Add(request(owner), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}})
	}
	add("web", "web-1")
	add("web", "web-2")
	add("web", "web-1")
	add("db", "db-1")
	down := errors.New("cannot wait")
	for _, tt := range []struct {
		rule, owner string
		err, want   error
		read        []string
	}{
		{"an error leaves all to the next time", "db", down, down, []string{"db-1"}},
		{"its own, each once", "web", nil, nil, []string{"web-1", "web-2"}},
		{"then no more", "web", nil, nil, nil},
		{"those that have gone are known to have", "db", apierrors.NewNotFound(schema.GroupResource{}, "db-1"), nil, []string{"db-1"}},
		{"and then no more", "db", nil, nil, nil},
	} {
		r := &reader{err: tt.err}
		err := objects.Await(t.Context(), r, request(tt.owner), &corev1.Pod{})
		slices.Sort(r.read)
		if left := objects.Any(request(tt.owner)); left != (err != nil) {
			t.Errorf("%s: anything left is %v", tt.rule, left)
		}
		if !errors.Is(err, tt.want) || !slices.Equal(r.read, tt.read) {
			t.Errorf("%s: read %v, %v", tt.rule, r.read, err)
		}
	}
}
