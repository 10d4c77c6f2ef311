package scheduler

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"svc.dev/svc/controllers/scheduler/decision"
)

func TestBindReadsThePodAfterAnError(t *testing.T) {
	refused := errors.New("rejected, or no response")
	now := metav1.Now()
	for _, test := range []struct {
		name   string
		answer error
		now    func(*corev1.Pod) // the pod at the API server afterwards; nil if it was deleted
		bound  bool
		failed bool
	}{
		{name: "it is bound", bound: true},
		{name: "it was bound, but the response was lost", answer: refused, now: func(p *corev1.Pod) { p.Spec.NodeName = "n" }, bound: true},
		{name: "another scheduler has bound it", answer: refused, now: func(p *corev1.Pod) { p.Spec.NodeName = "other" }},
		{name: "it was deleted", answer: refused},
		{name: "another pod has its name", answer: refused, now: func(p *corev1.Pod) { p.UID = "2" }},
		{name: "it is being deleted", answer: refused, now: func(p *corev1.Pod) { p.DeletionTimestamp = &now; p.Finalizers = []string{"example.com/x"} }},
		{name: "it was rejected", answer: refused, now: func(*corev1.Pod) {}, failed: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "1"}}
			var binding *corev1.Binding
			builder := fake.NewClientBuilder()
			if test.now != nil {
				p := pod.DeepCopy()
				test.now(p)
				builder.WithObjects(p)
			}
			c := interceptor.NewClient(builder.Build(), interceptor.Funcs{
				SubResourceCreate: func(_ context.Context, _ client.Client, subresource string, obj, sub client.Object, _ ...client.SubResourceCreateOption) error {
					binding = sub.(*corev1.Binding)
					return test.answer
				},
			})
			bound, err := (&binder{client: c, plain: c, live: c}).bind(t.Context(), pod, "n")
			if bound != test.bound || (err != nil) != test.failed {
				t.Errorf("got %t, %v", bound, err)
			}
			if binding.UID != "1" || binding.Target.Name != "n" {
				t.Errorf("binding is %v", binding)
			}
		})
	}
}

func TestBindClaims(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "1"}}
	claim := func(name string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "u"}}
	}
	taken := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "taken"}, Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "ns", Name: "other", UID: "o"}}}
	c := fake.NewClientBuilder().WithObjects(claim("a"), claim("b"), taken,
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "free"}}, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "disks"}}).Build()
	b := &binder{client: c, plain: c, live: c}

	for range 2 { // the second time, there is nothing to do
		if err := b.bindClaims(t.Context(), pod, "n", []decision.ClaimDecision{{Claim: "a", Volume: "free"}, {Claim: "b"}}); err != nil {
			t.Fatal(err)
		}
	}
	var got corev1.PersistentVolumeClaim
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "b"}, &got); err != nil || got.Annotations[volume.AnnSelectedNode] != "n" {
		t.Errorf("claim b is %v: %v", got.Annotations, err)
	}
	var pv corev1.PersistentVolume
	if err := c.Get(t.Context(), client.ObjectKey{Name: "free"}, &pv); err != nil || !volume.IsVolumeBoundToClaim(&pv, claim("a")) || pv.Annotations[volume.AnnBoundByController] == "" {
		t.Errorf("volume is %v: %v", pv, err)
	}
	if err := b.bindClaims(t.Context(), pod, "n", []decision.ClaimDecision{{Claim: "a", Volume: "taken"}}); err == nil {
		t.Error("the volume of another claim is reserved")
	}
	if err := b.bindClaims(t.Context(), pod, "n", []decision.ClaimDecision{{Claim: "none", Volume: "free"}}); err == nil {
		t.Error("a deleted claim is bound")
	}
}
