package footprint

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestMemoryIsReturnedOnceAfterEachBurstOfWork(t *testing.T) {
	for name, test := range map[string]struct {
		collections []time.Duration // times since the begin
		want        []time.Duration // of the calls of shrink
	}{
		"no work":                              {nil, nil},
		"the collections of an idle process":   {[]time.Duration{2 * time.Minute, 4 * time.Minute, 6 * time.Minute}, nil},
		"a burst":                              {[]time.Duration{time.Minute, time.Minute + time.Second}, []time.Duration{time.Minute + 11*time.Second}},
		"work that goes on":                    {[]time.Duration{1 * time.Second, 9 * time.Second, 17 * time.Second, 25 * time.Second}, []time.Duration{35 * time.Second}},
		"the collection that shrink makes":     {[]time.Duration{1 * time.Second, 2 * time.Second, 12 * time.Second, 13 * time.Second}, []time.Duration{12 * time.Second}},
		"a burst just after a burst":           {[]time.Duration{1 * time.Second, 2 * time.Second, 12 * time.Second, 13 * time.Second, 14 * time.Second}, []time.Duration{12 * time.Second, 24 * time.Second}},
		"collections that are far from others": {[]time.Duration{0, 11 * time.Second, 22 * time.Second}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				began, collected := time.Now(), make(chan struct{})
				var got []time.Duration
				go rest(ctx, collected, func() { got = append(got, time.Since(began)) })
				for _, at := range test.collections {
					time.Sleep(at - time.Since(began))
					synctest.Wait() // a shrink of the same moment comes first
					collected <- struct{}{}
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				if !slices.Equal(got, test.want) {
					t.Errorf("shrunk after %v, want %v", got, test.want)
				}
			})
		})
	}
}
