package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestConditionOfPodWithoutNode(t *testing.T) {
	then, now := metav1.NewTime(time.Unix(100, 0)), time.Unix(200, 0)
	why := reason{reason: corev1.PodReasonUnschedulable, message: "0/1 nodes are available: 1 Insufficient cpu."}
	old := corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: why.reason, Message: why.message,
		ObservedGeneration: 1, LastTransitionTime: then,
	}
	for _, test := range []struct {
		name    string
		change  func(*corev1.PodCondition)
		changed bool
		since   metav1.Time
	}{
		{"no condition", nil, true, metav1.NewTime(now)},
		{"an equal condition", func(*corev1.PodCondition) {}, false, then},
		{"another reason", func(c *corev1.PodCondition) { c.Reason = corev1.PodReasonSchedulingGated }, true, then},
		{"another message", func(c *corev1.PodCondition) { c.Message = "" }, true, then},
		{"an older generation", func(c *corev1.PodCondition) { c.ObservedGeneration = 0 }, true, then},
		{"another status", func(c *corev1.PodCondition) { c.Status = corev1.ConditionTrue }, true, metav1.NewTime(now)},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
			if test.change != nil {
				c := old
				test.change(&c)
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady}, c}
			}
			got, changed := unscheduled(pod, why, now)
			want := old
			want.LastTransitionTime = test.since
			if got != want || changed != test.changed {
				t.Errorf("got %v, %t", got, changed)
			}
		})
	}
}

func TestConditionIsWrittenOnlyForTheSamePodWithoutNode(t *testing.T) {
	now := metav1.Now()
	for _, test := range []struct {
		name    string
		change  func(*corev1.Pod)
		written bool
	}{
		{"a pod without a node", func(*corev1.Pod) {}, true},
		{"a pod that was bound", func(p *corev1.Pod) { p.Spec.NodeName = "n" }, false},
		{"another pod of the same name", func(p *corev1.Pod) { p.UID = "2" }, false},
		{"a pod that is being deleted", func(p *corev1.Pod) { p.DeletionTimestamp, p.Finalizers = &now, []string{"example.com/x"} }, false},
		{"a deleted pod", nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "1"}}
			builder := fake.NewClientBuilder().WithStatusSubresource(pod)
			if test.change != nil {
				p := pod.DeepCopy()
				test.change(p)
				builder.WithObjects(p)
			}
			var patches []string
			c := interceptor.NewClient(builder.Build(), interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
					data, err := patch.Data(obj)
					patches = append(patches, string(data))
					if err != nil {
						return err
					}
					return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
				},
			})
			r := newConditionReconciler(c, time.Now)
			r.enqueue(pod, reason{reason: "Unschedulable", message: "no"})
			if _, err := r.Reconcile(t.Context(), keyOf(pod)); err != nil {
				t.Fatal(err)
			}
			if len(r.reasons) > 0 {
				t.Errorf("reasons remain: %v", r.reasons)
			}
			if written := len(patches) == 1; written != test.written {
				t.Fatalf("patches are %q", patches)
			}
			for _, p := range patches {
				var fields struct {
					Metadata struct{ UID, ResourceVersion string }
				}
				if err := json.Unmarshal([]byte(p), &fields); err != nil || fields.Metadata.UID != "1" || fields.Metadata.ResourceVersion == "" {
					t.Errorf("patch %s has no preconditions: %v", p, err)
				}
			}
		})
	}
}

func TestFailedConditionIsWrittenAgainWithTheNewestReason(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "1"}}
	c := fake.NewClientBuilder().WithStatusSubresource(pod).WithObjects(pod.DeepCopy()).Build()
	var r *conditionReconciler
	failing := errors.New("unavailable")
	r = newConditionReconciler(interceptor.NewClient(c, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if failing != nil {
				r.enqueue(pod, reason{reason: "Unschedulable", message: "the newest"}) // during the request
				return failing
			}
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
	}), time.Now)
	r.enqueue(pod, reason{reason: "Unschedulable", message: "the first"})
	if _, err := r.Reconcile(t.Context(), keyOf(pod)); !errors.Is(err, failing) {
		t.Fatalf("got %v, want %v", err, failing)
	}
	failing = nil
	if _, err := r.Reconcile(t.Context(), keyOf(pod)); err != nil {
		t.Fatal(err)
	}
	var got corev1.Pod
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(pod), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Status.Conditions) != 1 || got.Status.Conditions[0].Message != "the newest" {
		t.Errorf("the conditions are %v", got.Status.Conditions)
	}
}
