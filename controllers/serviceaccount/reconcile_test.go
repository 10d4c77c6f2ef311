package serviceaccount

import (
	"context"
	"errors"
	"testing"

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
	accounts := schema.GroupResource{Resource: "serviceaccounts"}
	terminating := apierrors.NewForbidden(accounts, "default", errors.New("namespace is terminating"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	quota := apierrors.NewForbidden(accounts, "default", errors.New("exceeded quota"))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}}
	existing := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "default", Labels: map[string]string{"by": "user"}}}
	for _, test := range []struct {
		rule    string
		objects []client.Object
		fail    error // of the creation
		creates int
		err     error
	}{
		{"a missing service account is created", []client.Object{namespace}, nil, 1, nil},
		{"an existing one is not written", []client.Object{namespace, existing}, nil, 0, nil},
		{"a deleted namespace gets none", nil, nil, 0, nil},
		{"it is no error if another client was faster", []client.Object{namespace}, apierrors.NewAlreadyExists(accounts, "default"), 1, nil},
		{"nor if the namespace terminates", []client.Object{namespace}, terminating, 1, nil},
		{"any other error is returned, for a retry", []client.Object{namespace}, quota, 1, quota},
	} {
		t.Run(test.rule, func(t *testing.T) {
			creates := 0
			c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(test.objects...).WithInterceptorFuncs(interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
					creates++
					if test.fail != nil {
						return test.fail
					}
					return c.Create(ctx, obj, opts...)
				},
			}).Build()
			_, err := (&reconciler{c}).Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "a"}})
			if !errors.Is(err, test.err) || creates != test.creates {
				t.Errorf("%d creations, error %v; want %d, %v", creates, err, test.creates, test.err)
			}
			err = c.Get(t.Context(), client.ObjectKeyFromObject(existing), &corev1.ServiceAccount{})
			if exists := err == nil; exists != (len(test.objects) > 0 && test.fail == nil) {
				t.Errorf("the service account exists: %v", exists)
			}
		})
	}
}
