package footprint

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestMemoryIsReturnedOnceAfterEachBurstOfWork(t *testing.T) {
	const mb = 1 << 20
	// work is how much is allocated in each second of a time.
	type work struct {
		from, to time.Duration
		rate     uint64
	}
	for name, test := range map[string]struct {
		live uint64
		work []work
		took time.Duration   // of each call of shrink
		want []time.Duration // of the calls of shrink
	}{
		"no work":                   {10 * mb, nil, 0, nil},
		"little work all the time":  {10 * mb, []work{{0, time.Hour, mb}}, 0, nil},
		"much work all the time":    {10 * mb, []work{{0, time.Hour, 20 * mb}}, 0, []time.Duration{time.Hour + 3*time.Second}},
		"a burst":                   {10 * mb, []work{{time.Minute, time.Minute + time.Second, 20 * mb}}, 0, []time.Duration{time.Minute + 6*time.Second}},
		"a burst for a large heap":  {1600 * mb, []work{{time.Minute, time.Minute + time.Second, 99 * mb}}, 0, nil},
		"a burst of a large heap":   {1600 * mb, []work{{time.Minute, time.Minute + time.Second, 100 * mb}}, 0, []time.Duration{time.Minute + 6*time.Second}},
		"a burst just after a rest": {10 * mb, []work{{0, time.Second, 20 * mb}, {10 * time.Second, 11 * time.Second, 20 * mb}}, 0, []time.Duration{6 * time.Second, 36 * time.Second}},
		"a rest that takes long":    {10 * mb, []work{{0, time.Second, 20 * mb}, {10 * time.Second, 11 * time.Second, 20 * mb}}, time.Second, []time.Duration{6 * time.Second, 108 * time.Second}},
		"what a rest allocates":     {10 * mb, []work{{0, time.Second, 20 * mb}, {6 * time.Second, 7 * time.Second, 20 * mb}}, 2 * time.Second, []time.Duration{6 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				began := time.Now()
				read := func() heap {
					h := heap{live: test.live}
					for _, w := range test.work {
						h.allocated += uint64(max(min(time.Since(began), w.to)-w.from, 0)/time.Second) * w.rate
					}
					return h
				}
				var got []time.Duration
				go rest(ctx, read, func() { got = append(got, time.Since(began)); time.Sleep(test.took) })
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				if !slices.Equal(got, test.want) {
					t.Errorf("shrunk after %v, want %v", got, test.want)
				}
			})
		})
	}
}

func TestTheHeapIsRead(t *testing.T) {
	runtime.GC() // until the first collection, nothing is known to live
	before := readHeap()
	kept := make([]byte, 1<<20)
	after := readHeap()
	if after.allocated < before.allocated+uint64(len(kept)) || after.live == 0 {
		t.Errorf("%+v after %+v", after, before)
	}
}
