package claimresize

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

func claim(size, class string, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	c.Spec.StorageClassName = ptr.To(class)
	c.Status.Phase = phase
	return c
}

func TestAClaimGrowsOnlyIfItsClassAllowsIt(t *testing.T) {
	class := func(name string, expands *bool) runtime.Object {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, AllowVolumeExpansion: expands}
	}
	classes := []runtime.Object{class("grows", ptr.To(true)), class("fixed", ptr.To(false)), class("silent", nil)}
	const (
		unbound = `persistentvolumeclaims "c" is forbidden: Only bound persistent volume claims can be expanded`
		fixed   = `persistentvolumeclaims "c" is forbidden: only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize`
	)
	for _, test := range []struct {
		rule     string
		old, new *corev1.PersistentVolumeClaim
		err      string
	}{
		{"it grows", claim("1Gi", "grows", corev1.ClaimBound), claim("2Gi", "grows", corev1.ClaimBound), ""},
		{"an equal size", claim("1Gi", "fixed", corev1.ClaimPending), claim("1024Mi", "fixed", corev1.ClaimPending), ""},
		{"not before it is bound", claim("1Gi", "grows", corev1.ClaimPending), claim("2Gi", "grows", corev1.ClaimBound), unbound},
		{"a class that forbids it", claim("1Gi", "fixed", corev1.ClaimBound), claim("2Gi", "fixed", corev1.ClaimBound), fixed},
		{"a class that does not allow it", claim("1Gi", "silent", corev1.ClaimBound), claim("2Gi", "silent", corev1.ClaimBound), fixed},
		{"no class", claim("1Gi", "", corev1.ClaimBound), claim("2Gi", "", corev1.ClaimBound), fixed},
		{"a class that does not exist", claim("1Gi", "gone", corev1.ClaimBound), claim("2Gi", "gone", corev1.ClaimBound), fixed},
		{"another class", claim("1Gi", "fixed", corev1.ClaimBound), claim("2Gi", "grows", corev1.ClaimBound), fixed},
	} {
		t.Run(test.rule, func(t *testing.T) {
			err := admissiontest.Server{Objects: classes}.Start(t, Register).Send(t, admissiontest.Request{Object: test.new, Old: test.old})
			if test.err == "" && err != nil || test.err != "" && (!apierrors.IsForbidden(err) || err.Error() != test.err) {
				t.Errorf("got %v, want %s", err, test.err)
			}
		})
	}
}
