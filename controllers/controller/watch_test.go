package controller

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

func TestBatchedRequestsAreEnqueuedOnceAfterThePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(clock.RealClock{}, "", workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute), nil)
		defer q.ShutDown()
		var events Queue[string]
		w := Watch[string]{Source: source.TypedFunc[string](func(_ context.Context, q Queue[string]) error {
			events = q
			return nil
		})}.Batched(time.Minute)
		if err := w.from(nil).Start(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		events.Add("a")
		time.Sleep(30 * time.Second)
		events.Add("a")
		if waiting := q.Len(); waiting != 0 {
			t.Errorf("%d requests are enqueued within the period", waiting)
		}
		take(t, q, "a")
		if took := time.Since(began); took != time.Minute {
			t.Errorf("enqueued after %s, want the period after the first event", took)
		}
		q.Done("a")
		time.Sleep(time.Hour)
		if waiting := q.Len(); waiting != 0 {
			t.Errorf("%d requests are enqueued for the second event", waiting)
		}
	})
}

func TestTriggerEnqueuesRequestsAndCountsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(clock.RealClock{}, "", workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute), nil)
		defer q.ShutDown()
		trigger := &Trigger[string]{}
		trigger.Enqueue("early")
		if got := trigger.Failures("early"); got != 0 {
			t.Errorf("%d failures before the controller runs", got)
		}
		if err := trigger.Watch().from(nil).Start(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		trigger.Enqueue("a", "b")
		take(t, q, "early")
		take(t, q, "a")
		take(t, q, "b")
		q.AddRateLimited("a")
		q.AddRateLimited("a")
		if got := trigger.Failures("a"); got != 2 {
			t.Errorf("%d failures, want 2", got)
		}
	})
}
