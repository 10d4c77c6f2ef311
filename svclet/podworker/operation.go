package podworker

import (
	"context"
	"time"

	"svc.dev/svc/svclet/pod"
)

// operation is an operation in flight.
type operation struct {
	cancel context.CancelFunc
	// replaced means that another operation of the same key waits for the end of
	// this one: the last such is next.
	replaced bool
	next     pod.Operation
}

// startOperation starts an operation. If one with its key is in flight, it cancels
// that, and starts the new one when the old one has ended.
func (w *Worker) startOperation(op pod.Operation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.operations[op.Key()]; o != nil {
		o.replaced, o.next = true, op
		o.cancel()
		return
	}
	w.perform(op)
}

// perform runs an operation in a goroutine of its own. The machine learns of its
// end together with what the runtime holds of the pod after it. The caller holds
// mu.
func (w *Worker) perform(op pod.Operation) {
	ctx, cancel := context.WithCancel(w.ctx)
	o := &operation{cancel: cancel}
	w.operations[op.Key()] = o
	w.o.Goroutines.Go(func() {
		defer cancel()
		result := w.o.Executor.Perform(ctx, w.Pod(), w.Observed(), op, w.addPulling)
		observed, err := w.observeRuntime()
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.operations, op.Key())
		if err != nil {
			return // The agent stops.
		}
		result.Cancelled = o.replaced
		if o.replaced {
			w.perform(o.next)
		}
		w.add(causeSync, func(m *pod.Machine) {
			m.Done(op, result)
			w.observe(observed)
		})
	})
}

// addPulling adds to the time that images have been pulled for.
func (w *Worker) addPulling(took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pulling += took
}
