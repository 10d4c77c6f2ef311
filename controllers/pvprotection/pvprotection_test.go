package pvprotection

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDecide(t *testing.T) {
	for _, test := range []struct {
		name      string
		deleting  bool
		finalizer bool
		phase     corev1.PersistentVolumePhase
		want      action
	}{
		{"a new volume is protected", false, false, corev1.VolumePending, add},
		{"a protected volume is left alone", false, true, corev1.VolumeBound, keep},
		{"a bound volume stays while it is being deleted", true, true, corev1.VolumeBound, keep},
		{"a released volume may go", true, true, corev1.VolumeReleased, remove},
		{"an available volume may go", true, true, corev1.VolumeAvailable, remove},
		{"no finalizer is added to a volume that goes", true, false, corev1.VolumeBound, keep},
	} {
		t.Run(test.name, func(t *testing.T) {
			pv := &corev1.PersistentVolume{Status: corev1.PersistentVolumeStatus{Phase: test.phase}}
			if test.deleting {
				pv.DeletionTimestamp = new(metav1.Now())
			}
			if test.finalizer {
				pv.Finalizers = []string{"example.com/other", finalizer}
			}
			if got := decide(pv); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
