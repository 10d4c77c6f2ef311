package eviction

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/eviction/threshold"
)

func TestANotificationOfTheKernelMeasuresAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(2)
		thresholds, err := threshold.Parse(threshold.Settings{Hard: map[string]string{"memory.available": "2Gi"}})
		if err != nil {
			t.Fatal(err)
		}
		asked := map[int64]func(){} // by GiB in use, those that go on
		manager := NewManager(Options{
			Pods: m, Stats: m, Clock: clock.RealClock{}, Thresholds: thresholds, TransitionPeriod: time.Minute,
			Conditions: &Conditions{}, Changed: func() {}, Event: func(string, string, string) {},
			Notify: func(signal threshold.Signal, bytes int64, crossed func()) (func(), error) {
				if signal != threshold.Memory {
					t.Errorf("asked for %s", signal)
				}
				asked[bytes/gib] = crossed
				return func() { delete(asked, bytes/gib) }, nil
			},
		})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { manager.Run(ctx) })

		time.Sleep(15 * time.Second)
		synctest.Wait()
		// 10 GiB are available and one is the working set; of two in use one is inactive.
		crossed := asked[10]
		if len(asked) != 1 || crossed == nil {
			t.Fatalf("asked for %v", asked)
		}
		m.mu.Lock()
		m.memory = 1
		m.mu.Unlock()
		crossed()
		time.Sleep(time.Second / 2)
		synctest.Wait()
		if left := m.left(); left != 1 {
			t.Errorf("%d pods are left, want one", left)
		}
		for range 100 { // A usage that goes up and down is measured once a second.
			crossed()
		}
		time.Sleep(20 * time.Second)
		stop()
		running.Wait()
		if len(asked) != 0 {
			t.Errorf("notifications that go on after the end: %v", asked)
		}
	})
}

func TestAThresholdThatIsMetBetweenTwoMeasurementsIsActedOnWithinASecond(t *testing.T) {
	for _, blind := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := newMachine(1)
			m.blind = blind
			thresholds, err := threshold.Parse(threshold.Settings{Hard: map[string]string{"memory.available": "2Gi"}})
			if err != nil {
				t.Fatal(err)
			}
			manager := NewManager(Options{
				Pods: m, Stats: m, Clock: clock.RealClock{}, Thresholds: thresholds, TransitionPeriod: time.Minute,
				Conditions: &Conditions{}, Changed: func() {}, Event: func(string, string, string) {},
			})
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { manager.Run(ctx) })
			time.Sleep(period + 5*time.Second/2)
			m.mu.Lock()
			m.memory = 1
			m.mu.Unlock()
			for _, after := range []time.Duration{probePeriod, period} {
				time.Sleep(after)
				synctest.Wait()
				if evicted := m.left() == 0; evicted != (!blind || after == period) {
					t.Errorf("probes fail: %t; after another %s the pod is evicted: %t", blind, after, evicted)
				}
			}
			stop()
			running.Wait()
		})
	}
}
