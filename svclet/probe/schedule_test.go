package probe

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/svclet/pod"
)

func TestAResultIsReportedAtItsThresholdAndWhenItChanges(t *testing.T) {
	for _, c := range []struct {
		name             string
		success, failure int32
		runs             string // + succeeded, - failed
		reported         string // at which of them
	}{
		{"first success", 1, 3, "+++", "+.."},
		{"first failure needs its threshold", 1, 3, "---", "..-"},
		{"one success between failures resets the count", 1, 3, "+--+---", "+.....-"},
		{"successes need their threshold", 2, 1, "-+-++", "-...+"},
		{"what is reported is not reported again", 1, 1, "++--++", "+.-.+."},
		{"no threshold is one", 0, 0, "+-", "+-"},
		{"a flicker below the threshold goes unseen", 1, 2, "+-+-+--", "+.....-"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var counter counter
			spec := &corev1.Probe{SuccessThreshold: c.success, FailureThreshold: c.failure}
			var reported strings.Builder
			for _, run := range c.runs {
				mark := '.'
				if counter.add(run == '+', spec) {
					mark = run
				}
				reported.WriteRune(mark)
			}
			if reported.String() != c.reported {
				t.Errorf("runs %s reported %s, want %s", c.runs, &reported, c.reported)
			}
		})
	}
}

// bench is a manager in a synctest bubble, with the recorded requests of its
// executor.
type bench struct {
	*Manager
	journal
	began time.Time
	stop  func()

	mu    sync.Mutex
	calls []string
	// exit sets the result of a kind of probe.
	exit func(ctx context.Context, kind pod.ProbeKind) (int32, error)
}

func newBench(t *testing.T) *bench {
	b := &bench{began: time.Now(), exit: func(context.Context, pod.ProbeKind) (int32, error) { return 0, nil }}
	b.Manager = newManager(&b.journal, func(ctx context.Context, id string, command []string, _ time.Duration) ([]byte, []byte, int32, error) {
		b.mu.Lock()
		b.calls = append(b.calls, command[0]+" "+time.Since(b.began).String())
		exit := b.exit
		b.mu.Unlock()
		code, err := exit(ctx, pod.ProbeKind(command[0]))
		return []byte("out"), []byte("err"), code, err
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.Run(ctx)
	}()
	b.stop = func() {
		cancel()
		<-done
	}
	return b
}

// after lets time pass and returns the requests made meanwhile.
func (b *bench) after(d time.Duration) []string {
	time.Sleep(d)
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	calls := b.calls
	b.calls = nil
	return calls
}

func (b *bench) answer(f func(context.Context, pod.ProbeKind) (int32, error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.exit = f
}

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

func TestAProbeRunsAfterItsInitialDelayAndThenEveryPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.stop()
		b.Sync("uid", podOf(80, "c"), "", []pod.Probe{execProbe(pod.Readiness, time.Now(), func(s *corev1.Probe) { s.InitialDelaySeconds = 7 })})
		want(t, "before the delay", b.after(6*time.Second))
		want(t, "after it", b.after(22*time.Second), "Readiness 7s", "Readiness 17s", "Readiness 27s")
	})
}

func TestAStartTimeInTheFutureDoesNotDelayProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.stop()
		b.Sync("uid", podOf(80, "c"), "", []pod.Probe{execProbe(pod.Liveness, time.Now().Add(time.Hour), func(s *corev1.Probe) { s.InitialDelaySeconds = 7 })})
		want(t, "runs", b.after(8*time.Second), "Liveness 7s")
	})
}

func TestFirstProbesAfterAnAgentRestartAreSpreadOverAPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Minute)
		b := newBench(t)
		defer b.stop()
		b.Sync("uid", podOf(80, "c"), "", []pod.Probe{execProbe(pod.Liveness, b.began.Add(-time.Minute), nil)})
		want(t, "first run", b.after(10*time.Second), "Liveness 5s")
		b.Sync("new", podOf(80, "c"), "", []pod.Probe{execProbe(pod.Liveness, time.Now(), nil)})
		want(t, "a new container's at once", b.after(0), "Liveness 10s")
	})
}

func TestASlowProbeDelaysNoOtherAndNeverOverlapsWithItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.stop()
		b.answer(func(_ context.Context, kind pod.ProbeKind) (int32, error) {
			if kind == pod.Liveness {
				time.Sleep(25 * time.Second)
			}
			return 0, nil
		})
		b.Sync("uid", podOf(80, "c"), "", []pod.Probe{execProbe(pod.Liveness, time.Now(), nil), execProbe(pod.Readiness, time.Now(), nil)})
		calls := b.after(51 * time.Second)
		slices.Sort(calls)
		want(t, "runs", calls,
			"Liveness 0s", "Liveness 25s", "Liveness 50s",
			"Readiness 0s", "Readiness 10s", "Readiness 20s", "Readiness 30s", "Readiness 40s", "Readiness 50s")
	})
}

func TestOtherProbesWaitForTheStartupProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.stop()
		b.answer(func(context.Context, pod.ProbeKind) (int32, error) { return 1, nil })
		p, now := podOf(80, "c"), time.Now()
		probes := []pod.Probe{
			execProbe(pod.Liveness, now, nil), execProbe(pod.Readiness, now, nil),
			execProbe(pod.Startup, now, func(s *corev1.Probe) { s.FailureThreshold = 5 }),
		}
		b.Sync("uid", p, "", probes)
		want(t, "at first", b.after(11*time.Second), "Startup 0s", "Startup 10s")
		b.answer(func(context.Context, pod.ProbeKind) (int32, error) { return 0, nil })
		want(t, "until it succeeds", b.after(30*time.Second), "Startup 20s")
		_, results := b.take()
		want(t, "results", results, "uid id-c Startup true outerr")

		b.Sync("uid", p, "", probes)
		calls := b.after(0)
		slices.Sort(calls)
		want(t, "then the others", calls, "Liveness 41s", "Readiness 41s")
		b.Sync("uid", p, "", probes[:1])
		want(t, "startup no more", b.after(10*time.Second), "Liveness 51s")
	})
}

func TestAProbeStopsAfterAFailureThatRestartsTheContainer(t *testing.T) {
	for _, kind := range []pod.ProbeKind{pod.Liveness, pod.Startup} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			defer b.stop()
			b.answer(func(context.Context, pod.ProbeKind) (int32, error) { return 1, nil })
			probe := execProbe(kind, time.Now(), func(s *corev1.Probe) { s.FailureThreshold = 2 })
			b.Sync("uid", podOf(80, "c"), "", []pod.Probe{probe})
			want(t, "runs", b.after(time.Minute), string(kind)+" 0s", string(kind)+" 10s")
			events, results := b.take()
			want(t, "results", results, "uid id-c "+string(kind)+" false outerr")
			want(t, "events", events,
				"Warning Unhealthy p/c: "+string(kind)+" probe failed: outerr",
				"Warning Unhealthy p/c: "+string(kind)+" probe failed: outerr")

			probe.ContainerID, probe.Since = "id-next", time.Now()
			b.Sync("uid", podOf(80, "c"), "", []pod.Probe{probe})
			want(t, "of the next container", b.after(0), string(kind)+" 1m0s")
		})
	}
}

func TestSyncKeepsTheCountsOfProbesThatStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.stop()
		b.answer(func(context.Context, pod.ProbeKind) (int32, error) { return 1, nil })
		probes := []pod.Probe{execProbe(pod.Readiness, time.Now(), func(s *corev1.Probe) { s.FailureThreshold = 3 })}
		for range 3 {
			b.Sync("uid", podOf(80, "c"), "", probes)
			if _, results := b.take(); len(results) > 0 {
				t.Errorf("told too early: %q", results)
			}
			b.after(8 * time.Second)
		}
		_, results := b.take()
		want(t, "results", results, "uid id-c Readiness false outerr")
	})
}

func TestARemovedProbeIsCancelledAndNotReported(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*bench)
	}{
		{"by Sync", func(b *bench) { b.Sync("uid", podOf(80, "c"), "", nil) }},
		{"by Remove", func(b *bench) { b.Remove("uid") }},
		{"by the end of Run", func(b *bench) { b.stop() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				defer b.stop()
				cancelled := false
				b.answer(func(ctx context.Context, _ pod.ProbeKind) (int32, error) {
					<-ctx.Done()
					cancelled = true
					return 1, nil
				})
				b.Sync("uid", podOf(80, "c"), "", []pod.Probe{execProbe(pod.Liveness, time.Now(), nil)})
				b.after(time.Second)
				c.end(b)
				b.after(time.Minute)
				events, results := b.take()
				if !cancelled || len(events)+len(results) > 0 {
					t.Errorf("cancelled %t, events %q, results %q", cancelled, events, results)
				}
			})
		})
	}
}

func TestAProbeThatCannotRunIsRetriedThreeTimesAndIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.stop()
		b.answer(func(context.Context, pod.ProbeKind) (int32, error) { return 0, errors.New("no runtime") })
		b.Sync("uid", podOf(80, "c"), "", []pod.Probe{execProbe(pod.Liveness, time.Now(), nil)})
		want(t, "runs", b.after(5*time.Second), "Liveness 0s", "Liveness 0s", "Liveness 0s")
		events, results := b.take()
		want(t, "events", events, "Warning Unhealthy p/c: Liveness probe errored and resulted in unknown state: no runtime")
		want(t, "results", results)
		b.answer(func(context.Context, pod.ProbeKind) (int32, error) { return 0, nil })
		want(t, "in the next period", b.after(6*time.Second), "Liveness 10s")
	})
}

func TestProbesOfUnknownContainersAreIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.stop()
		b.Sync("uid", podOf(80, "other"), "", []pod.Probe{execProbe(pod.Liveness, time.Now(), nil)})
		want(t, "runs", b.after(time.Minute))
	})
}

func TestProbesRunInTheOrderOfTheirDueTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.stop()
		var probes []pod.Probe
		for _, delay := range []int32{50, 10, 40, 20, 30} {
			probe := execProbe(pod.Liveness, time.Now(), func(s *corev1.Probe) { s.InitialDelaySeconds, s.PeriodSeconds = delay, 600 })
			probe.ContainerID = string('a' + delay)
			probes = append(probes, probe)
		}
		b.Sync("uid", podOf(80, "c"), "", probes)
		b.Sync("uid", podOf(80, "c"), "", slices.Delete(probes, 2, 3))
		want(t, "runs", b.after(time.Minute), "Liveness 10s", "Liveness 20s", "Liveness 30s", "Liveness 50s")
	})
}
