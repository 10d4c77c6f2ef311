package apiserver

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/utils/clock"

	"svc.dev/svc/apiserver/bootstrap"
)

func notFull() bool { return false }

func TestAStepIsStoppedWhenTheServerBeginsToStop(t *testing.T) {
	for name, delay := range map[string]time.Duration{"while it is repeated": 0, "before its first success": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hook, cancel := context.WithCancel(t.Context())
				defer cancel()
				calls, stops := 0, 0
				s := newBootstrapStep(bootstrap.Step{
					Name: "s", Interval: time.Second,
					Ensure: func(context.Context) error { time.Sleep(delay); calls++; return nil },
					Stop:   func(context.Context) error { stops++; return nil },
				}, func(<-chan struct{}) bool { return true }, notFull, clock.RealClock{})
				go s.keep(nil)
				go func() { _ = s.hook(genericapiserver.PostStartHookContext{Context: hook}) }()
				time.Sleep(10 * time.Second)
				began := time.Now()
				if err := s.stop(); err != nil || time.Since(began) != 0 {
					t.Errorf("%v after %s", err, time.Since(began))
				}
				if delay == 0 && stops != 1 {
					t.Error("it is not stopped when the hook has ended")
				}
				time.Sleep(delay + time.Second)
				synctest.Wait()
				before := calls
				time.Sleep(time.Hour)
				synctest.Wait()
				if stops != 1 || calls != before {
					t.Errorf("stopped %d times, and called %d times after that", stops, calls-before)
				}
			})
		})
	}
}

func TestAStepDoesNotRunBeforeTheReleaseMayServeWhatIsStored(t *testing.T) {
	for name, refused := range map[string]error{"it may": nil, "it must not": errors.New("it would lose a field")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, calls := undecided(), 0
				s := newBootstrapStep(bootstrap.Step{Ensure: func(context.Context) error { calls++; return nil }}, r.allows, notFull, clock.RealClock{})
				go func() { _ = s.hook(genericapiserver.PostStartHookContext{Context: t.Context()}) }()
				synctest.Wait()
				if calls != 0 {
					t.Error("it runs before it is decided")
				}
				r.refused = refused
				close(r.done)
				synctest.Wait()
				if ran := calls > 0; ran != (refused == nil) {
					t.Errorf("it runs when it is decided: %v", ran)
				}
			})
		})
	}
}

func TestAServerIsReadyAtAFullEtcdAndItsStepsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		var calls, successes atomic.Int32
		s := newBootstrapStep(bootstrap.Step{Interval: time.Hour, Ensure: func(context.Context) error {
			if calls.Add(1) < 20 {
				return errors.New("etcd refuses the write")
			}
			successes.Add(1)
			return nil
		}}, func(<-chan struct{}) bool { return true }, full.Load, clock.RealClock{})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = s.hook(genericapiserver.PostStartHookContext{Context: t.Context()})
		}()
		go s.keep(t.Context().Done())
		select {
		case <-ended:
			t.Fatal("the hook has ended before etcd is full")
		case <-time.After(time.Minute):
		}
		full.Store(true)
		<-ended
		if successes.Load() > 0 {
			t.Fatal("the step has succeeded")
		}
		time.Sleep(90 * time.Minute)
		if synctest.Wait(); successes.Load() != 2 {
			t.Errorf("it has succeeded %d times, want the first time and one after the interval", successes.Load())
		}
	})
}
