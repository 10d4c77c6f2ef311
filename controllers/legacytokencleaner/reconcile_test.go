package legacytokencleaner

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestAnUnusedTokenIsMarkedAndThenDeletedUnlessAPodUsesIt(t *testing.T) {
	created := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "t", CreationTimestamp: metav1.NewTime(created), Annotations: map[string]string{
			corev1.ServiceAccountNameKey: "robot", corev1.ServiceAccountUIDKey: "1",
		}},
		Type: corev1.SecretTypeServiceAccountToken,
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "robot", UID: "1"}, Secrets: []corev1.ObjectReference{{Name: "t"}}}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: tracking.Namespace, Name: tracking.Name}, Data: map[string]string{"since": "2026-01-01"}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}}
	pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "t"}}}}
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(secret, account, config, pod).Build()
	clock := clocktesting.NewFakeClock(created)
	r := &reconciler{client: c, live: c, clock: clock, period: 30 * 24 * time.Hour}
	key := client.ObjectKeyFromObject(secret)
	after := func(days int) (label string, gone bool) {
		t.Helper()
		clock.Step(time.Duration(days) * 24 * time.Hour)
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
		found := &corev1.Secret{}
		err := c.Get(t.Context(), key, found)
		return found.Labels[invalidSinceLabel], apierrors.IsNotFound(err)
	}
	if label, gone := after(60); label != "" || gone {
		t.Errorf("while a pod uses it: %q, %v", label, gone)
	}
	if err := c.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if label, gone := after(0); label != "2026-03-02" || gone {
		t.Errorf("without the pod: %q, %v", label, gone)
	}
	if label, gone := after(30); label != "2026-03-02" || gone {
		t.Errorf("after a period: %q, %v", label, gone)
	}
	if _, gone := after(1); !gone {
		t.Error("it is not deleted")
	}
}
