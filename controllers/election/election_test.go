package election

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

func TestMayTake(t *testing.T) {
	for rule, test := range map[string]struct {
		holder    *string
		seconds   *int32
		unchanged time.Duration
		want      bool
	}{
		"it was never held":                  {nil, nil, 0, true},
		"its holder released it":             {ptr.To(""), ptr.To[int32](15), 0, true},
		"its holder has restarted":           {ptr.To("me"), ptr.To[int32](15), 0, true},
		"another holds it":                   {ptr.To("you"), ptr.To[int32](15), 15 * time.Second, false},
		"another does not renew it":          {ptr.To("you"), ptr.To[int32](15), 15*time.Second + 1, true},
		"another holds it without an end":    {ptr.To("you"), nil, 0, false},
		"another held it without an end ago": {ptr.To("you"), nil, 1, true},
	} {
		spec := coordinationv1.LeaseSpec{HolderIdentity: test.holder, LeaseDurationSeconds: test.seconds}
		if got := mayTake(spec, "me", test.unchanged); got != test.want {
			t.Errorf("%s: %v, want %v", rule, got, test.want)
		}
	}
}

func TestSpecOfAHeldAndAReleasedLease(t *testing.T) {
	first, second, third := time.Unix(1, 0), time.Unix(2, 0), time.Unix(3, 0)
	taken := held(coordinationv1.LeaseSpec{}, "me", 1500*time.Millisecond, first)
	if got := say(taken); got != "me 2s acquired 1 renewed 1 transitions 0" {
		t.Errorf("taken for the first time: %s", got)
	}
	renewed := held(taken, "me", 2*time.Second, second)
	if got := say(renewed); got != "me 2s acquired 1 renewed 2 transitions 0" {
		t.Errorf("renewed: %s", got)
	}
	if got := say(held(renewed, "you", 4*time.Second, third)); got != "you 4s acquired 3 renewed 3 transitions 1" {
		t.Errorf("taken over: %s", got)
	}
	back := released(renewed, third)
	if got := say(back); got != " 1s acquired 1 renewed 3 transitions 0" {
		t.Errorf("given back: %s", got)
	}
	if got := say(held(back, "me", 2*time.Second, third)); got != "me 2s acquired 3 renewed 3 transitions 1" {
		t.Errorf("taken again: %s", got)
	}
}

func say(spec coordinationv1.LeaseSpec) string {
	var b strings.Builder
	b.WriteString(*spec.HolderIdentity)
	b.WriteString(" " + (time.Duration(*spec.LeaseDurationSeconds) * time.Second).String())
	b.WriteString(" acquired " + spec.AcquireTime.UTC().Format("5"))
	b.WriteString(" renewed " + spec.RenewTime.UTC().Format("5"))
	b.WriteString(" transitions " + strconv.Itoa(int(ptr.Deref(spec.LeaseTransitions, 0))))
	return b.String()
}

// The times of the tests below, which run in synctest's bubbles.
const (
	duration = 15 * time.Second
	deadline = 10 * time.Second
	period   = 2 * time.Second
)

var key = client.ObjectKey{Namespace: "kube-system", Name: "manager"}

// server is what the electors of a test share: an API server that may fail.
type server struct {
	client.WithWatch
	away atomic.Bool
	// back is subtracted from resource versions, as if an older state were there.
	back atomic.Bool
}

func newServer(t *testing.T) *server {
	scheme := runtime.NewScheme()
	if err := coordinationv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	s := &server{}
	s.WithWatch = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if s.away.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
			err := c.Get(ctx, key, obj, opts...)
			if s.back.Load() {
				obj.SetResourceVersion("1")
			}
			return err
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			if s.away.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
			if s.back.Load() {
				obj.SetResourceVersion("1") // a conflict
			}
			return c.Update(ctx, obj, opts...)
		},
	})
	return s
}

func (s *server) lease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	lease := &coordinationv1.Lease{}
	if err := s.WithWatch.Get(t.Context(), key, lease); err != nil {
		t.Fatal(err)
	}
	return lease
}

func (s *server) elector(holder string) *Elector {
	return &Elector{
		Client: s, Key: key, Holder: holder, Clock: clock.RealClock{}, Events: record.NewFakeRecorder(100),
		LeaseDuration: duration, RenewDeadline: deadline, RetryPeriod: period,
	}
}

// leading is a call of Lead.
type leading struct {
	working chan *Term // yields the term when work begins
	cancel  context.CancelFunc
	ended   chan error
	stopped time.Time // when work ended
}

func lead(t *testing.T, e *Elector) *leading {
	ctx, cancel := context.WithCancel(t.Context())
	l := &leading{working: make(chan *Term, 1), cancel: cancel, ended: make(chan error, 1)}
	go func() {
		l.ended <- e.Lead(ctx, func(ctx context.Context, term *Term) error {
			l.working <- term
			<-ctx.Done()
			l.stopped = time.Now()
			return nil
		})
	}()
	t.Cleanup(cancel)
	return l
}

func TestReleasedLeaseIsAcquiredWithinTheRetryPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		first := lead(t, s.elector("first"))
		<-first.working
		second := lead(t, s.elector("second"))
		time.Sleep(10 * duration)
		if len(second.working) > 0 {
			t.Fatal("two work at the same time")
		}
		stopped := time.Now()
		first.cancel()
		<-second.working
		if waited := time.Since(stopped); waited > period+period/5 {
			t.Errorf("taken over after %s", waited)
		}
		if err := <-first.ended; err != nil {
			t.Error(err)
		}
		if transitions := *s.lease(t).Spec.LeaseTransitions; transitions != 1 {
			t.Errorf("%d transitions", transitions)
		}
	})
}

// masterStatusOf returns the values of the gauge of a lease that are served.
func masterStatusOf(t *testing.T, lease string) (values []float64) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "leader_election_master_status" && m.GetLabel()[0].GetValue() == lease {
				values = append(values, m.GetGauge().GetValue())
			}
		}
	}
	return values
}

func TestTheGaugeOfAManagerIsServedBeforeItHasTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "measured"}}
		lease.Spec = held(lease.Spec, "another", duration, time.Now())
		if err := s.Create(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		e := s.elector("me")
		e.Key.Name = lease.Name
		leading := lead(t, e)
		synctest.Wait()
		if got := masterStatusOf(t, "measured"); !slices.Equal(got, []float64{0}) {
			t.Errorf("while the manager waits: %v, want 0", got)
		}
		<-leading.working
		if got := masterStatusOf(t, "measured"); !slices.Equal(got, []float64{1}) {
			t.Errorf("while it leads: %v, want 1", got)
		}
	})
}

func TestRestartedHolderHasItsLeaseAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		lease.Spec = held(lease.Spec, "svc-up", duration, time.Now())
		if err := s.Create(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		<-lead(t, s.elector("svc-up")).working
		if waited := time.Since(began); waited > 0 {
			t.Errorf("waited %s", waited)
		}
	})
}

func TestLeaderThatIsCutOffStopsBeforeTheNextOneStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, cut := newServer(t), &server{}
		cut.WithWatch = interceptor.NewClient(s.WithWatch, interceptor.Funcs{
			Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
				if cut.away.Load() {
					<-ctx.Done()
					return ctx.Err()
				}
				return c.Update(ctx, obj, opts...)
			},
		})
		first := lead(t, cut.elector("first"))
		term := <-first.working
		second := lead(t, s.elector("second"))
		time.Sleep(3 * period / 2)
		cut.away.Store(true)
		<-second.working
		began := time.Now()
		if err := <-first.ended; !errors.Is(err, ErrLost) {
			t.Errorf("it ended with %v", err)
		}
		if margin := began.Sub(first.stopped); margin < duration-deadline {
			t.Errorf("the first worked until %s before the second", margin)
		}
		if err := term.Confirm(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("the term goes on: %v", err)
		}
	})
}

func TestLeaderStopsAtOnceWhenItHasLostTheLease(t *testing.T) {
	for rule, change := range map[string]func(t *testing.T, s *server){
		"another has taken the lease": func(t *testing.T, s *server) {
			lease := s.lease(t)
			lease.Spec = held(lease.Spec, "thief", duration, time.Now())
			if err := s.WithWatch.Update(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
		},
		"the lease was deleted": func(t *testing.T, s *server) {
			if err := s.Delete(t.Context(), s.lease(t)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				l := lead(t, s.elector("first"))
				<-l.working
				change(t, s)
				changed := time.Now()
				if err := <-l.ended; !errors.Is(err, ErrLost) {
					t.Errorf("it ended with %v", err)
				}
				if took := time.Since(changed); took > period {
					t.Errorf("it took %s", took)
				}
				if rule == "another has taken the lease" && *s.lease(t).Spec.HolderIdentity != "thief" {
					t.Error("another's lease was given back")
				}
			})
		})
	}
}

func TestLeaderKeepsALeaseThatAnotherClientHasLabelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		l := lead(t, s.elector("first"))
		<-l.working
		lease := s.lease(t)
		lease.Labels = map[string]string{"touched": "true"}
		if err := s.WithWatch.Update(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * duration)
		if len(l.ended) > 0 {
			t.Fatal(<-l.ended)
		}
		if s.lease(t).Labels["touched"] == "" {
			t.Error("the label is gone")
		}
	})
}

func TestOlderStateOfTheLeaseEndsTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		l := lead(t, s.elector("first"))
		<-l.working
		time.Sleep(3 * period)
		s.back.Store(true)
		if err := <-l.ended; !errors.Is(err, ErrWentBack) {
			t.Errorf("it ended with %v", err)
		}
	})
}

func TestTermEndsAtTheRenewDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		term := newTerm(clock.RealClock{}, deadline, time.Now())
		sent := 0
		guarded := term.Guard(roundTripper(func(*http.Request) (*http.Response, error) { sent++; return nil, nil }))
		write := func(method string) error {
			req, err := http.NewRequestWithContext(t.Context(), method, "https://server/", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			_, err = guarded.RoundTrip(req)
			return err
		}
		time.Sleep(deadline - 1)
		if err := write(http.MethodPatch); err != nil || sent != 1 {
			t.Errorf("within the term: %v", err)
		}
		time.Sleep(time.Nanosecond)
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			if err := write(method); !errors.Is(err, ErrLost) || sent != 1 {
				t.Errorf("%s after the term: %v", method, err)
			}
		}
		if err := write(http.MethodGet); err != nil || sent != 2 {
			t.Errorf("a read: %v", err)
		}
		term.renewed(time.Now(), 0)
		if err := write(http.MethodPost); err != nil {
			t.Errorf("after a renewal: %v", err)
		}
		term.end()
		if err := write(http.MethodPost); !errors.Is(err, ErrLost) {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestRequiredRenewalBlocksWritesUntilTheLeaseIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		l := lead(t, s.elector("first"))
		term := <-l.working
		synctest.Wait()
		s.away.Store(true)
		term.RequireRenewal()
		confirmed := make(chan error, 1)
		go func() { confirmed <- term.Confirm(t.Context()) }()
		synctest.Wait()
		if len(confirmed) > 0 {
			t.Fatal("it did not wait")
		}
		s.away.Store(false) // the attempt that hangs ends with the term; another is not made before
		if err := <-confirmed; !errors.Is(err, ErrLost) {
			t.Errorf("the lease could not be renewed: %v", err)
		}
		if err := <-l.ended; !errors.Is(err, ErrLost) {
			t.Errorf("it ended with %v", err)
		}

		l = lead(t, s.elector("first"))
		term = <-l.working
		began := time.Now()
		term.RequireRenewal()
		if err := term.Confirm(t.Context()); err != nil {
			t.Error(err)
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("the lease was renewed after %s", waited)
		}
	})
}

func TestNilTermNeverBlocks(t *testing.T) {
	var term *Term
	term.RequireRenewal()
	if err := term.Confirm(t.Context()); err != nil {
		t.Error(err)
	}
	next := roundTripper(nil)
	if _, wrapped := term.Guard(next).(guard); wrapped {
		t.Error("it is guarded")
	}
}

func TestLeaderWithAnExpiredLeaseIsUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newServer(t).elector("first")
		if err := e.Check(nil); err != nil || e.Leading() {
			t.Errorf("without a lease: %v", err)
		}
		e.setTerm(newTerm(clock.RealClock{}, deadline, time.Now()))
		time.Sleep(duration + checkGrace)
		if err := e.Check(nil); err != nil || !e.Leading() {
			t.Errorf("at the end of the grace: %v", err)
		}
		time.Sleep(time.Nanosecond)
		if err := e.Check(nil); err == nil {
			t.Error("after the grace: healthy")
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }
