package storageprotection

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

func TestNewClaimsAndVolumesAreProtected(t *testing.T) {
	with := func(finalizers ...string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "ns", Name: "x", Finalizers: finalizers}
	}
	for _, test := range []struct {
		rule        string
		object, old runtime.Object
		want        []string
	}{
		{rule: "a claim", object: &corev1.PersistentVolumeClaim{ObjectMeta: with("other")}, want: []string{"other", "kubernetes.io/pvc-protection"}},
		{rule: "a volume", object: &corev1.PersistentVolume{ObjectMeta: with()}, want: []string{"kubernetes.io/pv-protection"}},
		{rule: "a class of attributes", object: &storagev1.VolumeAttributesClass{ObjectMeta: with()}, want: []string{"kubernetes.io/vac-protection"}},
		{rule: "once", object: &corev1.PersistentVolume{ObjectMeta: with("kubernetes.io/pv-protection")}, want: []string{"kubernetes.io/pv-protection"}},
		{rule: "an update may remove the finalizer", object: &corev1.PersistentVolumeClaim{ObjectMeta: with()}, old: &corev1.PersistentVolumeClaim{ObjectMeta: with("kubernetes.io/pvc-protection")}},
		{rule: "another kind", object: &corev1.ConfigMap{ObjectMeta: with()}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			if err := (admissiontest.Server{}).Start(t, Register).Send(t, admissiontest.Request{Object: test.object, Old: test.old}); err != nil {
				t.Fatal(err)
			}
			if got := test.object.(metav1.Object).GetFinalizers(); !slices.Equal(got, test.want) {
				t.Errorf("finalizers %v, want %v", got, test.want)
			}
		})
	}
}
