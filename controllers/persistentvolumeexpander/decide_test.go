package persistentvolumeexpander

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestGrown(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*corev1.PersistentVolumeClaim)
		want   bool
	}{
		{"a bound claim that requests more", nil, true},
		{"not one that has it", func(c *corev1.PersistentVolumeClaim) {
			c.Status.Capacity[corev1.ResourceStorage] = resource.MustParse("2Gi")
		}, false},
		{"nor one that has more", func(c *corev1.PersistentVolumeClaim) {
			c.Status.Capacity[corev1.ResourceStorage] = resource.MustParse("3Gi")
		}, false},
		{"nor one that is not bound", func(c *corev1.PersistentVolumeClaim) { c.Status = corev1.PersistentVolumeClaimStatus{} }, false},
		{"nor one that is being deleted", func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{
				Spec:   corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}}},
				Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			}
			if test.change != nil {
				test.change(claim)
			}
			if got := grown(claim); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
