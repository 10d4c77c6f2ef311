package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestMinIntervalSpacesTheSyncsOfARequest(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	failure := errors.New("failed")
	reconciled := 0
	s := newSpaced(reconcile.TypedFunc[string](func(_ context.Context, request string) (reconcile.Result, error) {
		reconciled++
		if request == "bad" {
			return reconcile.Result{}, failure
		}
		return reconcile.Result{RequeueAfter: time.Hour}, nil
	}), 100*time.Millisecond, clock)
	for _, step := range []struct {
		rule    string
		after   time.Duration
		request string
		synced  bool
		requeue time.Duration
		err     error
	}{
		{rule: "the first event is synced at once", request: "a", synced: true, requeue: time.Hour},
		{rule: "the next is requeued at the end of the interval", after: 30 * time.Millisecond, request: "a", requeue: 70 * time.Millisecond},
		{rule: "another request is synced at once", request: "b", synced: true, requeue: time.Hour},
		{rule: "so is one just before the end", after: 69 * time.Millisecond, request: "a", requeue: time.Millisecond},
		{rule: "after the interval it is synced", after: time.Millisecond, request: "a", synced: true, requeue: time.Hour},
		{rule: "which begins the next interval", request: "a", requeue: 100 * time.Millisecond},
		{rule: "a failure is returned", request: "bad", synced: true, err: failure},
		{rule: "and begins no interval, as it has a backoff", request: "bad", synced: true, err: failure},
	} {
		clock.SetTime(clock.Now().Add(step.after))
		before := reconciled
		result, err := s.Reconcile(t.Context(), step.request)
		if synced := reconciled > before; synced != step.synced || result.RequeueAfter != step.requeue || !errors.Is(err, step.err) {
			t.Errorf("%s: synced %v, requeued after %s, %v; want %v, %s, %v", step.rule, synced, result.RequeueAfter, err, step.synced, step.requeue, step.err)
		}
	}
	clock.SetTime(clock.Now().Add(time.Second))
	if _, err := s.Reconcile(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if kept := len(s.until); kept != 1 {
		t.Errorf("%d intervals that are over are kept", kept-1)
	}
}
