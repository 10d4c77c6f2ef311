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
		{"a protected volume stays as it is", false, true, corev1.VolumeBound, keep},
		{"a bound volume that is being deleted stays protected", true, true, corev1.VolumeBound, keep},
		{"a released volume that is being deleted loses its finalizer", true, true, corev1.VolumeReleased, remove},
		{"so does an available volume", true, true, corev1.VolumeAvailable, remove},
		{"a volume that is being deleted gets no finalizer", true, false, corev1.VolumeBound, keep},
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
