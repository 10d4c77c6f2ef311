package footprint

import (
	"context"
	"runtime"
	"runtime/metrics"
	"testing"
)

// gogc returns the pace of the garbage collector.
func gogc() uint64 {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func TestAStartCollectsLessOftenUntilItHasEnded(t *testing.T) {
	t.Setenv("GOGC", "")
	for name, end := range map[string]func(stop, started func()){
		"started": func(_, started func()) { started(); started() },
		"stopped": func(stop, started func()) { stop(); started() },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		started := Start(ctx)
		if got := gogc(); got != startPercent {
			t.Errorf("%s: the pace is %d during the start", name, got)
		}
		end(cancel, started)
		if got := gogc(); got != basePercent {
			t.Errorf("%s: the pace is %d after it", name, got)
		}
	}
}

// TestAStartWithALargeHeapKeepsGosPace: it would need several times its memory.
func TestAStartWithALargeHeapKeepsGosPace(t *testing.T) {
	t.Setenv("GOGC", "")
	started := Start(t.Context())
	defer started()
	heap := make([]byte, startHeap+1)
	for gogc() != basePercent {
		runtime.GC()
	}
	runtime.KeepAlive(heap)
}

func TestAStartKeepsThePaceThatIsSet(t *testing.T) {
	t.Setenv("GOGC", "50")
	before := gogc()
	started := Start(t.Context())
	if got := gogc(); got != before {
		t.Errorf("the pace is %d, was %d", got, before)
	}
	started()
}
