package tokencleaner

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestReconcile(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		rule, namespace string
		kind            corev1.SecretType
		expiration      string
		deleted         bool
		after           time.Duration
	}{
		{"an expired token is deleted", "kube-system", "bootstrap.kubernetes.io/token", "2026-01-01T12:00:00Z", true, 0},
		{"a token with an offset expires at the same instant", "kube-system", "bootstrap.kubernetes.io/token", "2026-01-01T13:00:00+01:00", true, 0},
		{"one whose expiration cannot be read is deleted", "kube-system", "bootstrap.kubernetes.io/token", "soon", true, 0},
		{"one that will expire is requeued", "kube-system", "bootstrap.kubernetes.io/token", "2026-01-01T12:01:00Z", false, time.Minute},
		{"one without expiration stays", "kube-system", "bootstrap.kubernetes.io/token", "", false, 0},
		{"a secret of another type stays", "kube-system", "Opaque", "2026-01-01T11:00:00Z", false, 0},
		{"a secret of another namespace stays", "default", "bootstrap.kubernetes.io/token", "2026-01-01T11:00:00Z", false, 0},
	} {
		t.Run(test.rule, func(t *testing.T) {
			secret := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: test.namespace, Name: "bootstrap-token-abcdef", UID: "u"},
				Type:       test.kind, Data: map[string][]byte{"expiration": []byte(test.expiration)},
			}
			c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(secret).Build()
			key := client.ObjectKeyFromObject(secret)
			result, err := (&reconciler{c, func() time.Time { return now }}).Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
			if err != nil || result.RequeueAfter != test.after {
				t.Errorf("got %v, %v", result, err)
			}
			if deleted := apierrors.IsNotFound(c.Get(t.Context(), key, secret)); deleted != test.deleted {
				t.Errorf("deleted: %v", deleted)
			}
		})
	}
}
