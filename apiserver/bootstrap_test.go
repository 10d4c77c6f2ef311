package apiserver

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/utils/clock"

	"svc.dev/svc/apiserver/bootstrap"
)

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
				}, clock.RealClock{})
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
