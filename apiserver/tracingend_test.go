package apiserver

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/tracing"
)

// silentTracer has a collector that does not answer.
type silentTracer struct{ tracing.TracerProvider }

func (silentTracer) Shutdown(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestAServerEndsAlthoughTheCollectorOfSpansDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if err := (boundedTracer{silentTracer{}}).Shutdown(t.Context()); err != nil {
			t.Errorf("the end of tracing: %v", err)
		}
		if took := time.Since(begin); took != flushTimeout {
			t.Errorf("it took %s", took)
		}
	})
}
