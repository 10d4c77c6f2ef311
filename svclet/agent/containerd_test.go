package agent

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"k8s.io/utils/clock"
)

// fakeContainerd records how it is ended.
type fakeContainerd struct{ ended string }

func (f *fakeContainerd) Close() { f.ended = "closed" }

func (f *fakeContainerd) Stop(ctx context.Context) error {
	f.ended = "stopped"
	return ctx.Err()
}

func TestAStartThatFailsStopsOnlyAContainerdOfItsOwn(t *testing.T) {
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	for adopted, want := range map[bool]string{true: "closed", false: "stopped"} {
		started := &fakeContainerd{}
		if err := giveUp(interrupted, started, adopted); err != nil || started.ended != want {
			t.Errorf("adopted %t: it is %s, %v; want %s", adopted, started.ended, err, want)
		}
	}
}

func TestRulesOfPodsAreCheckedEachMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&out)))
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
		var checks atomic.Int32
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			keepRules(ctx, clock.RealClock{}, func(context.Context) (bool, error) {
				switch checks.Add(1) {
				case 2:
					return true, nil
				case 3, 4, 6:
					return false, errors.New("the lock is held")
				}
				return false, nil
			})
		}()
		for minute := range int32(7) {
			synctest.Wait()
			if got := checks.Load(); got != minute {
				t.Errorf("%d checks after %d minutes", got, minute)
			}
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		cancel()
		<-ended
		for text, want := range map[string]int{"Rules of iptables for pods were missing": 1, `Failed to add rules of iptables for pods, will retry" err="the lock is held"`: 2} {
			if got := strings.Count(out.String(), text); got != want {
				t.Errorf("%q is logged %d times, want %d: %s", text, got, want, out.String())
			}
		}
	})
}
