package eviction

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func newEvictor(t *testing.T, clock *clocktesting.FakeClock) (*Evictor, client.Client, *corev1.Pod, *record.FakeRecorder) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "web", UID: "1", Finalizers: []string{"example.com/stays"}}}
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(pod).WithStatusSubresource(pod).Build()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
		t.Fatal(err)
	}
	recorder := record.NewFakeRecorder(10)
	return New(c, recorder, clock.Now, Reason{
		Condition: "Tainted", Message: "it is tainted", Event: "Eviction",
		Marking:    func(pod types.NamespacedName) string { return "marking " + pod.String() },
		Cancelling: func(pod types.NamespacedName) string { return "cancelling " + pod.String() },
	}), c, pod, recorder
}

// events returns the events that were recorded since the last call.
func events(r *record.FakeRecorder) (all []string) {
	for len(r.Events) > 0 {
		all = append(all, <-r.Events)
	}
	return all
}

func TestPodIsEvictedWhenItsTimeHasCome(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(100, 0))
	e, c, pod, recorder := newEvictor(t, clock)
	key := client.ObjectKeyFromObject(pod)
	if left, evicted, err := e.At(t.Context(), pod, time.Unix(130, 0)); left != 30*time.Second || evicted || err != nil || !e.IsScheduled(key) {
		t.Fatalf("%v, %v, %v", left, evicted, err)
	}
	clock.Step(30 * time.Second)
	if left, evicted, err := e.At(t.Context(), pod, time.Unix(130, 0)); left != 0 || !evicted || err != nil || e.IsScheduled(key) {
		t.Fatalf("%v, %v, %v", left, evicted, err)
	}
	if err := c.Get(t.Context(), key, pod); err != nil || pod.DeletionTimestamp == nil {
		t.Fatalf("it is not deleted: %v", err)
	}
	if got := pod.Status.Conditions; len(got) != 1 || got[0].Type != corev1.DisruptionTarget || got[0].Reason != "Tainted" || got[0].Message != "it is tainted" {
		t.Errorf("conditions %+v", got)
	}
	if got := events(recorder); len(got) != 1 || got[0] != "Normal Eviction marking n/web" {
		t.Errorf("events %q", got)
	}
}

func TestCancelledEvictionIsReportedUnlessThePodIsGone(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(100, 0))
	e, _, pod, recorder := newEvictor(t, clock)
	key := client.ObjectKeyFromObject(pod)
	e.Cancel(key, false)
	for _, gone := range []bool{true, false} {
		if _, _, err := e.At(t.Context(), pod, time.Unix(130, 0)); err != nil {
			t.Fatal(err)
		}
		e.Cancel(key, gone)
	}
	if got := events(recorder); len(got) != 1 || got[0] != "Normal Eviction cancelling n/web" {
		t.Errorf("events %q", got)
	}
}

func TestAnotherPodOfTheNameIsNotEvicted(t *testing.T) {
	e, c, pod, recorder := newEvictor(t, clocktesting.NewFakeClock(time.Unix(100, 0)))
	e.client = interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		Delete: func(_ context.Context, _ client.WithWatch, obj client.Object, options ...client.DeleteOption) error {
			asked := (&client.DeleteOptions{}).ApplyOptions(options)
			if p := asked.Preconditions; p == nil || p.UID == nil || *p.UID != "0" {
				t.Errorf("the deletion has the preconditions %v", p)
			}
			return apierrors.NewConflict(corev1.Resource("pods"), obj.GetName(), errors.New("the UID differs"))
		},
	})
	before := pod.DeepCopy()
	before.UID = "0"
	before.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "Tainted", Message: "it is tainted"}}
	if _, evicted, err := e.At(t.Context(), before, time.Unix(0, 0)); evicted || err != nil {
		t.Errorf("%v, %v", evicted, err)
	}
	if got := events(recorder); len(got) > 0 {
		t.Errorf("events %q", got)
	}
}
