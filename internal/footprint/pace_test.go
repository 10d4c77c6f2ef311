package footprint

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestABusyServerWithASmallHeapCollectsLessOften(t *testing.T) {
	for name, test := range map[string]struct {
		since time.Duration
		live  uint64
		want  int
	}{
		"a small heap, soon":       {100 * time.Millisecond, 32 << 20, 400},
		"a larger one, soon":       {100 * time.Millisecond, 64 << 20, 200},
		"a large one keeps Go's":   {100 * time.Millisecond, 1 << 30, 100},
		"a small heap, much later": {time.Minute, 32 << 20, 100},
		"a tiny heap is bounded":   {time.Millisecond, 1, 400},
		"an unknown heap":          {time.Millisecond, 0, 100},
	} {
		if got := pace(test.since, test.live); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

func TestThePaceOfTheEnvironmentIsKept(t *testing.T) {
	t.Setenv("GOGC", "50")
	before := debug.SetGCPercent(50)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	Pace(ended)
	if got := debug.SetGCPercent(before); got != 50 {
		t.Errorf("the percentage is %d, want 50", got)
	}
}

func TestEveryCollectionIsSeen(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	collected := make(chan struct{}, 1)
	watchCollections(ctx, collected)
	for range 3 {
		runtime.GC()
		<-collected
	}
}
