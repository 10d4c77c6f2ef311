package vacprotection

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestClassIsProtectedWhileItIsUsed(t *testing.T) {
	name := "gold"
	for _, test := range []struct {
		rule string
		user client.Object
		used bool
	}{
		{"a claim wants it", &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeAttributesClassName: &name}}, true},
		{"a claim has it", &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{CurrentVolumeAttributesClassName: &name}}, true},
		{"a claim is changed to it", &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{ModifyVolumeStatus: &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: name}}}, true},
		{"a volume has it", &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{VolumeAttributesClassName: &name}}, true},
		{"a claim of no class", &corev1.PersistentVolumeClaim{}, false},
	} {
		t.Run(test.rule, func(t *testing.T) {
			test.user.SetName("user")
			class := &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
			claims, volumes := claimsByClass(), volumesByClass()
			c := fake.NewClientBuilder().WithObjects(class, test.user).
				WithIndex(claims.Object, claims.Name, claims.Values).WithIndex(volumes.Object, volumes.Name, volumes.Values).Build()
			r := &reconciler{c, c}
			sync := func() {
				t.Helper()
				if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(class)}); err != nil {
					t.Fatal(err)
				}
			}
			sync()
			if err := c.Delete(t.Context(), class); err != nil {
				t.Fatal(err)
			}
			sync()
			err := c.Get(t.Context(), client.ObjectKeyFromObject(class), class)
			if used := err == nil; used != test.used || err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("the class is there: %v, want %v: %v", used, test.used, err)
			}
		})
	}
}
