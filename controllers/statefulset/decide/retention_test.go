package decide

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestOwnersOfAClaim(t *testing.T) {
	const (
		retain = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
		remove = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	)
	set := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "db", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}
	pod := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "db-0", UID: "pod", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}
	external := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "c", UID: "c"}
	other, plain, stale, stalePod := external, set, set, pod
	other.Controller, plain.Controller, stale.UID, stalePod.UID = ptr.To(true), nil, "earlier", "earlier"
	refs := func(r ...metav1.OwnerReference) []metav1.OwnerReference { return r }
	for _, test := range []struct {
		rule            string
		deleted, scaled appsv1.PersistentVolumeClaimRetentionPolicyType
		condemned       bool
		has             []metav1.OwnerReference
		want            []metav1.OwnerReference
		changed         bool
	}{
		{"a claim that is deleted with the set belongs to the set, as its controller", remove, retain, false, nil, refs(set), true},
		{"once", remove, retain, false, refs(set), nil, false},
		{"beside an owner that is no controller", remove, retain, false, refs(external), refs(external, set), true},
		{"in any order", remove, retain, false, refs(set, external), nil, false},
		{"a reference that is not the controller's becomes it", remove, retain, false, refs(plain), refs(set), true},
		{"a claim of another controller gets no owner", remove, remove, true, refs(other), nil, false},
		{"and loses the set", remove, retain, false, refs(other, set), refs(other), true},
		{"a claim of an earlier set of the name stays as it is", remove, retain, false, refs(stale), nil, false},
		{"and one of an earlier pod of the name", retain, remove, true, refs(stalePod), nil, false},
		{"a claim that is deleted with a pod beyond the replicas belongs to the pod", remove, remove, true, refs(set), refs(pod), true},
		{"and to the set again when the pod stays", remove, remove, false, refs(pod), refs(set), true},
		{"a claim that stays has neither as owner", retain, retain, false, refs(external, set), refs(external), true},
	} {
		t.Run(test.rule, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-db-0", OwnerReferences: test.has}}
			s := &State{
				Kind: appsv1.SchemeGroupVersion.WithKind("StatefulSet"), PodKind: corev1.SchemeGroupVersion.WithKind("Pod"),
				Set: &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db", UID: "db"}, Spec: appsv1.StatefulSetSpec{
					VolumeClaimTemplates:                 []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
					PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: test.deleted, WhenScaled: test.scaled},
				}},
				Claims: map[string]*corev1.PersistentVolumeClaim{claim.Name: claim},
			}
			changed := s.ownersOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-0", UID: "pod"}}, 0, test.condemned)
			if len(changed) > 0 != test.changed {
				t.Fatalf("changes %v, want a change: %v", changed, test.changed)
			}
			if test.changed && !slices.EqualFunc(changed[0].References, test.want, func(a, b metav1.OwnerReference) bool {
				return a.UID == b.UID && ptr.Deref(a.Controller, false) == ptr.Deref(b.Controller, false)
			}) {
				t.Errorf("got %v, want %v", changed[0].References, test.want)
			}
		})
	}
}
