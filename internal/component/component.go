// Package component starts the parts of a process one after the other, watches
// them, and stops them in the opposite order.
package component

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Component is a part of a process that runs until it is stopped.
type Component interface {
	// Name is what reports and errors call it.
	Name() string
	// Start starts it. ctx bounds the start only: what runs afterwards ends with
	// Stop. After an error nothing runs, and Stop is not called.
	Start(ctx context.Context) error
	// Ready waits until it can be used, and returns where or what it is, for
	// reports, such as its address.
	Ready(ctx context.Context) (description string, err error)
	// Failed yields an error if it ends without being stopped. It is nil for a
	// component that cannot.
	Failed() <-chan error
	// Stop stops it and returns when it has ended. It is called once.
	Stop() error
}

// ErrStillStarting is what Stop returns for a component that is not ready and
// cannot be stopped before it is. The process has to end without stopping the
// components that it depends on.
var ErrStillStarting = errors.New("it cannot be stopped before it is ready")

// Task is a goroutine with a life of its own. Its zero value is ready for Go.
type Task struct {
	stop    context.CancelFunc
	running sync.WaitGroup
	failed  chan error
}

// Go runs the function of a component until Stop. The function's context has the
// values of ctx, but does not end with it.
func (t *Task) Go(ctx context.Context, name string, run func(ctx context.Context) error) {
	ctx, t.stop = context.WithCancel(context.WithoutCancel(ctx))
	t.failed = make(chan error, 1)
	t.running.Go(func() {
		err := run(ctx)
		if ctx.Err() != nil {
			return // an error now is a consequence of the stop
		}
		if err == nil {
			err = errors.New("stopped by itself")
		}
		t.failed <- fmt.Errorf("%s: %w", name, err)
	})
}

// Failed yields the function's error, or one that says that it returned before
// it was stopped.
func (t *Task) Failed() <-chan error { return t.failed }

// Stop cancels the function's context and returns when the function has
// returned. It does nothing without Go.
func (t *Task) Stop() {
	if t.stop != nil {
		t.stop()
	}
	t.running.Wait()
}
