package statefulset

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// TestAClaimWhoseOwnerChangesIsPassed: a set may wait because a claim belongs to an earlier
// pod of the same name.
func TestAClaimWhoseOwnerChangesIsPassed(t *testing.T) {
	owned := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "1", OwnerReferences: []metav1.OwnerReference{{Kind: "Pod", Name: "db-0", UID: "2"}}}}
	for _, test := range []struct {
		name   string
		change func(*corev1.PersistentVolumeClaim)
		want   bool
	}{
		{"its status changes", func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimBound }, false},
		{"its owner is removed", func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = nil }, true},
		{"it is being deleted", func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} }, true},
		{"it is another one of the same name", func(c *corev1.PersistentVolumeClaim) { c.UID = "3" }, true},
	} {
		after := owned.DeepCopy()
		test.change(after)
		if got := releases().Update(event.UpdateEvent{ObjectOld: &owned, ObjectNew: after}); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
