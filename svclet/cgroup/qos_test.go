package cgroup

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// runUpdater runs an updater until the test ends, and then waits for it.
func runUpdater(t *testing.T, u *QOSUpdater) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { u.Run(ctx) })
	return func() { cancel(); running.Wait() }
}

func TestQoSCgroupsAreWrittenWithTheNewestPodsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var written []int
		u := NewQOSUpdater(func(active []*corev1.Pod) error {
			written = append(written, len(active))
			<-gate
			return nil
		}, clock.RealClock{}, 0)
		stop := runUpdater(t, u)
		u.SetActive(make([]*corev1.Pod, 1))
		synctest.Wait() // The first write hangs.
		u.SetActive(make([]*corev1.Pod, 2))
		u.SetActive(make([]*corev1.Pod, 3))
		close(gate)
		synctest.Wait()
		stop()
		if len(written) != 2 || written[0] != 1 || written[1] != 3 {
			t.Errorf("written with %v pods, want 1 and 3", written)
		}
	})
}

func TestQoSCgroupsAreWrittenAgainAfterEachResyncPeriod(t *testing.T) {
	for _, test := range []struct {
		resync time.Duration
		want   int
	}{{time.Minute, 5}, {0, 0}} {
		synctest.Test(t, func(t *testing.T) {
			times := 0
			u := NewQOSUpdater(func([]*corev1.Pod) error { times++; return nil }, clock.RealClock{}, test.resync)
			stop := runUpdater(t, u)
			time.Sleep(5*time.Minute + time.Second) // of the bubble's clock
			stop()
			if times != test.want {
				t.Errorf("resync %s: written %d times in 5 minutes, want %d", test.resync, times, test.want)
			}
		})
	}
}
