package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestSpaced(t *testing.T) {
	now := time.Unix(0, 0)
	failure := errors.New("failed")
	reconciled := 0
	s := Spaced(reconcile.TypedFunc[string](func(_ context.Context, request string) (reconcile.Result, error) {
		reconciled++
		if request == "bad" {
			return reconcile.Result{}, failure
		}
		return reconcile.Result{RequeueAfter: time.Hour}, nil
	}), 100*time.Millisecond, func() time.Time { return now })
	for _, step := range []struct {
		rule    string
		after   time.Duration
		request string
		does    bool
		again   time.Duration
		err     error
	}{
		{rule: "the first event is acted on at once", request: "a", does: true, again: time.Hour},
		{rule: "the next waits for the end of the rest", after: 30 * time.Millisecond, request: "a", again: 70 * time.Millisecond},
		{rule: "another request does not wait for it", request: "b", does: true, again: time.Hour},
		{rule: "nor one that is just before the end", after: 69 * time.Millisecond, request: "a", again: time.Millisecond},
		{rule: "after the rest it is acted on", after: time.Millisecond, request: "a", does: true, again: time.Hour},
		{rule: "which begins a new one", request: "a", again: 100 * time.Millisecond},
		{rule: "a failure is reported", request: "bad", does: true, err: failure},
		{rule: "and tried again when the queue says so", request: "bad", does: true, err: failure},
	} {
		now = now.Add(step.after)
		before := reconciled
		result, err := s.Reconcile(t.Context(), step.request)
		if did := reconciled > before; did != step.does || result.RequeueAfter != step.again || !errors.Is(err, step.err) {
			t.Errorf("%s: reconciled %v, again after %s, %v; want %v, %s, %v", step.rule, did, result.RequeueAfter, err, step.does, step.again, step.err)
		}
	}
	now = now.Add(time.Second)
	if _, err := s.Reconcile(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if known := len(s.(*spaced[string]).until); known != 1 {
		t.Errorf("%d requests are remembered whose rest is over", known-1)
	}
}
