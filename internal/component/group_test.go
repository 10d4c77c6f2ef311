package component

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// part is a component that records its calls in a log that all parts share.
type part struct {
	name         string
	log          *[]string
	failed       chan error
	start, ready func(ctx context.Context) error
	stop         func() error
}

func newPart(name string, log *[]string) *part {
	succeed := func(context.Context) error { return nil }
	return &part{name: name, log: log, failed: make(chan error, 1), start: succeed, ready: succeed, stop: func() error { return nil }}
}

func (p *part) Name() string         { return p.name }
func (p *part) Failed() <-chan error { return p.failed }

func (p *part) Start(ctx context.Context) error {
	*p.log = append(*p.log, "start "+p.name)
	return p.start(ctx)
}

func (p *part) Ready(ctx context.Context) (string, error) {
	*p.log = append(*p.log, "ready "+p.name)
	return "at " + p.name, p.ready(ctx)
}

func (p *part) Stop() error {
	*p.log = append(*p.log, "stop "+p.name)
	return p.stop()
}

func newGroup(parts ...Component) *Group {
	return &Group{Components: parts, Program: "test", Progress: io.Discard, StopTimeout: 10 * time.Second, Clock: clock.RealClock{}}
}

func TestComponentsStartInOrderAndStopInTheOppositeOrder(t *testing.T) {
	failure := errors.New("broken")
	for _, tc := range []struct {
		name   string
		change func(a, b *part)
		log    string
		err    error
	}{
		{"both", func(_, _ *part) {}, "start a, ready a, start b, ready b, stop b, stop a", nil},
		{"a component whose start fails is not stopped",
			func(_, b *part) { b.start = func(context.Context) error { return failure } },
			"start a, ready a, start b, stop a", failure},
		{"a component that does not become ready is stopped",
			func(_, b *part) { b.ready = func(context.Context) error { return failure } },
			"start a, ready a, start b, ready b, stop b, stop a", failure},
		{"the wait for a component ends when one that it depends on fails",
			func(a, b *part) {
				b.ready = func(ctx context.Context) error { a.failed <- failure; <-ctx.Done(); return ctx.Err() }
			},
			"start a, ready a, start b, ready b, stop b, stop a", failure},
		{"what a component that is still starting depends on is not stopped",
			func(_, b *part) {
				b.ready = func(context.Context) error { return failure }
				b.stop = func() error { return ErrStillStarting }
			},
			"start a, ready a, start b, ready b, stop b", failure},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log []string
			a, b := newPart("a", &log), newPart("b", &log)
			tc.change(a, b)
			g := newGroup(a, b)
			if _, err := g.Start(t.Context()); !errors.Is(err, tc.err) {
				t.Errorf("start: %v, want %v", err, tc.err)
			}
			if err := g.Stop(); err != nil {
				t.Errorf("stop: %v", err)
			}
			if got := strings.Join(log, ", "); got != tc.log {
				t.Errorf("got %s, want %s", got, tc.log)
			}
		})
	}
}

func TestTheReportSaysHowLongEachComponentTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log []string
		a, b := newPart("a", &log), newPart("b", &log)
		a.start = func(context.Context) error { time.Sleep(time.Second); return nil }
		b.ready = func(context.Context) error { time.Sleep(time.Minute); return nil }
		g := newGroup(a, b)
		report, err := g.Start(t.Context())
		if err != nil || len(report) != 2 || report[0] != (Started{"a", "at a", time.Second}) || report[1] != (Started{"b", "at b", time.Minute}) {
			t.Errorf("got %v, %v", report, err)
		}
		if err := g.Stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestWaitReturnsWithTheFirstFailure(t *testing.T) {
	var log []string
	a := newPart("a", &log)
	g := newGroup(a)
	if _, err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	failure := errors.New("broken")
	a.failed <- failure
	if err := g.Wait(t.Context()); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
	if err := g.Stop(); err != nil {
		t.Error(err)
	}
}

func TestStopIsBoundedAndSaysWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log []string
		a := newPart("a", &log)
		end := make(chan struct{})
		a.stop = func() error { <-end; return nil }
		g := newGroup(a)
		var progress lines
		g.Progress = &progress
		if _, err := g.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := g.Stop(); err == nil || !strings.Contains(err.Error(), "within 10s") {
			t.Errorf("got %v", err)
		}
		if got := progress.first(); got != "test: still stopping: a (2s)" {
			t.Errorf("printed %q first", got)
		}
		close(end)
	})
}

func TestATaskThatReturnsBeforeItIsStoppedHasFailed(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"with an error": {errors.New("broken"), "part: broken"},
		"without one":   {nil, "part: stopped by itself"},
	} {
		var task Task
		task.Go(t.Context(), "part", func(context.Context) error { return tc.err })
		if err := <-task.Failed(); err.Error() != tc.want {
			t.Errorf("%s: got %v, want %s", name, err, tc.want)
		}
		task.Stop()
	}
}

func TestATaskEndsWithStopOnly(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var task Task
	task.Go(ctx, "part", func(ctx context.Context) error { <-ctx.Done(); return nil })
	cancel()
	task.Stop()
	select {
	case err := <-task.Failed():
		t.Errorf("a task that was stopped has failed: %v", err)
	default:
	}
}

// lines are what was written to it, line by line.
type lines struct {
	mu      sync.Mutex
	written []string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written = append(l.written, strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

func (l *lines) first() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.written) == 0 {
		return ""
	}
	return l.written[0]
}
