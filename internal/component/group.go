package component

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"svc.dev/svc/internal/progress"
)

// Group is a list of components of which each depends on those before it.
type Group struct {
	// Components are in the order of their starts.
	Components []Component
	// Program is the beginning of the lines about a start that takes long, which
	// are written to Progress.
	Program  string
	Progress io.Writer
	// StopTimeout bounds Stop.
	StopTimeout time.Duration
	Clock       clock.WithTicker

	started    []Component
	failed     chan error
	stopping   chan struct{}
	forwarding sync.WaitGroup
}

// Started says how long a component took to become ready.
type Started struct {
	Name, Description string
	Took              time.Duration
}

// Start starts the components, each when those before it are ready. It returns
// early if ctx ends or a component fails. Stop is to be called in any case.
func (g *Group) Start(ctx context.Context) ([]Started, error) {
	g.failed, g.stopping = make(chan error, len(g.Components)), make(chan struct{})
	var report []Started
	for _, c := range g.Components {
		began, description := g.Clock.Now(), ""
		err := progress.While(g.Progress, g.Clock, fmt.Sprintf("%s: still starting: %s", g.Program, c.Name()), func() (err error) {
			description, err = g.start(ctx, c)
			return err
		})
		if err != nil {
			return report, err
		}
		report = append(report, Started{c.Name(), description, g.Clock.Since(began)})
		if err := ctx.Err(); err != nil {
			return report, err
		}
	}
	return report, nil
}

// start returns when the component is ready, or when a component has failed: it
// would wait in vain for one that it depends on.
func (g *Group) start(ctx context.Context, c Component) (description string, err error) {
	if err := c.Start(ctx); err != nil {
		return "", err
	}
	g.started = append(g.started, c)
	g.forward(c.Failed())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready := make(chan struct{})
	go func() {
		defer close(ready)
		description, err = c.Ready(ctx)
	}()
	select {
	case <-ready:
		return description, err
	case failure := <-g.failed:
		cancel()
		<-ready
		return "", failure
	}
}

// forward sends what a component's Failed yields to that of the group.
func (g *Group) forward(failed <-chan error) {
	g.forwarding.Go(func() {
		select {
		case err := <-failed:
			g.failed <- err
		case <-g.stopping:
		}
	})
}

// Wait returns when ctx ends, or with the error of the first component that
// fails.
func (g *Group) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-g.failed:
		return err
	}
}

// Stop stops the components that were started, the last one first. It returns an
// error if they have not ended within StopTimeout. If one cannot be stopped yet
// ([ErrStillStarting]), it returns at once and leaves those before it running.
func (g *Group) Stop() error {
	close(g.stopping)
	g.forwarding.Wait()
	stopped := make(chan error, 1)
	go func() { stopped <- g.stop() }()
	select {
	case err := <-stopped:
		return err
	case <-g.Clock.After(g.StopTimeout):
		return fmt.Errorf("some requests have not ended within %s and were cut off; nothing that was acknowledged is lost", g.StopTimeout)
	}
}

func (g *Group) stop() error {
	var errs []error
	for i := len(g.started) - 1; i >= 0; i-- {
		c := g.started[i]
		err := progress.While(g.Progress, g.Clock, fmt.Sprintf("%s: still stopping: %s", g.Program, c.Name()), c.Stop)
		if errors.Is(err, ErrStillStarting) {
			return errors.Join(errs...)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
