package pvcprotection

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDecide(t *testing.T) {
	for _, test := range []struct {
		name                string
		deleting, protected bool
		want                action
	}{
		{"a new claim gets the finalizer", false, false, add},
		{"a protected claim keeps it", false, true, keep},
		{"a claim that is being deleted loses it if unused", true, true, removeIfUnused},
		{"a claim without it that is being deleted stays as it is", true, false, keep},
	} {
		t.Run(test.name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{}
			if test.deleting {
				claim.DeletionTimestamp = new(metav1.Now())
			}
			if test.protected {
				claim.Finalizers = []string{finalizer}
			}
			if got := decide(claim); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestUses(t *testing.T) {
	named := corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "pod-v"}}}
	generic := corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}
	owned := []metav1.OwnerReference{{Kind: "Pod", Name: "pod", UID: "pod-uid", Controller: new(true)}}
	deleted := func(grace int64) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.Now()), &grace }
	}
	for _, test := range []struct {
		name   string
		volume corev1.Volume
		owners []metav1.OwnerReference
		change func(*corev1.Pod)
		want   bool
	}{
		{"a pod on a node uses the claim that it names", named, nil, nil, true},
		{"an unscheduled pod uses nothing", named, nil, func(p *corev1.Pod) { p.Spec.NodeName = "" }, false},
		{"a terminated pod uses its claim", named, nil, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, true},
		{"a pod that has shut down uses a claim that it names", named, nil, deleted(0), true},
		{"a pod uses the claim of its generic ephemeral volume", generic, owned, nil, true},
		{"a claim of that name that the pod does not own is not used", generic, nil, nil, false},
		{"a terminating pod uses its own claim", generic, owned, deleted(30), true},
		{"a pod that has shut down does not use its own claim", generic, owned, deleted(0), false},
		{"a pod with other volumes does not use it", corev1.Volume{Name: "v"}, owned, nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "pod-uid"},
				Spec:       corev1.PodSpec{NodeName: "node", Volumes: []corev1.Volume{{Name: "other"}, test.volume}},
			}
			if test.change != nil {
				test.change(pod)
			}
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod-v", OwnerReferences: test.owners}}
			if got := uses(pod, claim); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
