package rootcapublisher

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestReconcile(t *testing.T) {
	maps := schema.GroupResource{Resource: "configmaps"}
	terminating := apierrors.NewForbidden(maps, name, errors.New("namespace is terminating"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	quota := apierrors.NewForbidden(maps, name, errors.New("exceeded quota"))
	namespace := func(phase corev1.NamespacePhase) client.Object {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NamespaceStatus{Phase: phase}}
	}
	bundle := func(annotations, data map[string]string) client.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, Annotations: annotations}, Data: data}
	}
	good := map[string]string{key: "PEM"}
	active := namespace(corev1.NamespaceActive)
	for _, test := range []struct {
		rule    string
		objects []client.Object
		fail    error // of the write
		writes  int
		note    string // the annotation afterwards; empty if there is no config map
		err     error
	}{
		{"a missing config map is created", []client.Object{active}, nil, 1, description, nil},
		{"a correct one is not written", []client.Object{active, bundle(map[string]string{descriptionAnnotation: "ours"}, good)}, nil, 0, "ours", nil},
		{"other data is replaced", []client.Object{active, bundle(map[string]string{descriptionAnnotation: "ours"}, map[string]string{key: "PEM", "b": "x"})}, nil, 1, "ours", nil},
		{"a missing description is added", []client.Object{active, bundle(nil, good)}, nil, 1, description, nil},
		{"a terminating namespace gets none", []client.Object{namespace(corev1.NamespaceTerminating)}, nil, 0, "", nil},
		{"a deleted namespace gets none", nil, nil, 0, "", nil},
		{"it is no error if another client was faster", []client.Object{active}, apierrors.NewAlreadyExists(maps, name), 1, "", nil},
		{"nor if the namespace terminates", []client.Object{active}, terminating, 1, "", nil},
		{"any other error is returned, for a retry", []client.Object{active}, quota, 1, "", quota},
	} {
		t.Run(test.rule, func(t *testing.T) {
			writes := 0
			c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(test.objects...).WithInterceptorFuncs(interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
					if writes++; test.fail != nil {
						return test.fail
					}
					return c.Create(ctx, obj, opts...)
				},
				Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
					writes++
					return c.Patch(ctx, obj, p, opts...)
				},
			}).Build()
			_, err := (&reconciler{c, "PEM"}).Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "a"}})
			if !errors.Is(err, test.err) || writes != test.writes {
				t.Errorf("%d writes, error %v; want %d, %v", writes, err, test.writes, test.err)
			}
			found := &corev1.ConfigMap{}
			err = c.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: name}, found)
			switch {
			case test.note == "" && !apierrors.IsNotFound(err):
				t.Errorf("the config map exists: %v", err)
			case test.note != "" && err != nil:
				t.Error(err)
			case test.note != "":
				if diff := cmp.Diff(good, found.Data); diff != "" || found.Annotations[descriptionAnnotation] != test.note {
					t.Errorf("data differs (-want +got):\n%s\nannotations %v", diff, found.Annotations)
				}
			}
		})
	}
}
