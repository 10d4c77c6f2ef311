package scheduler

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestRepeatedEventsAreDroppedAndSimilarOnesCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := fake.NewClientBuilder().Build()
		busy := false
		r := newEventRecorder(c, clock.RealClock{}, scheme.Scheme, func() bool { return busy })
		go r.run(ctx)
		defer synctest.Wait()
		defer cancel()
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "1"}}
		events := func() []corev1.Event {
			synctest.Wait()
			var list corev1.EventList
			if err := c.List(t.Context(), &list); err != nil {
				t.Fatal(err)
			}
			return list.Items
		}

		fail := func(message string) {
			r.enqueue(pod, "default-scheduler", corev1.EventTypeWarning, "FailedScheduling", message)
		}
		fail("no")
		fail("no") // within repeatInterval
		if got := events(); len(got) != 1 || got[0].Count != 1 || got[0].Source.Component != "default-scheduler" || got[0].InvolvedObject.Kind != "Pod" {
			t.Fatalf("after the first: %v", got)
		}
		time.Sleep(repeatInterval)
		fail("no")
		if got := events(); len(got) != 1 || got[0].Count != 2 {
			t.Fatalf("after a minute: %v", got)
		}
		for _, e := range events() {
			if err := c.Delete(t.Context(), &e); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(repeatInterval)
		fail("no")
		if got := events(); len(got) != 1 || got[0].Count != 3 {
			t.Fatalf("after the event has expired: %v", got)
		}

		busy = true
		fail(strings.Repeat("x", 2000))
		if got := events(); len(got) != 1 {
			t.Fatalf("while pods are bound: %v", got)
		}
		time.Sleep(bindingPause)
		if got := events(); len(got) != 2 || len(got[0].Message)+len(got[1].Message) != maxMessage+len("no") {
			t.Fatalf("after bindingPause: %v", got)
		}
	})
}
