package apiserver

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"svc.dev/svc/apiserver/release/record"
)

func undecided() *recordedRelease {
	return &recordedRelease{examining: make(chan struct{}), done: make(chan struct{}), full: make(chan struct{})}
}

func TestAServerWaitsForTheExaminationOfWhatIsStored(t *testing.T) {
	for _, c := range []struct {
		name              string
		examining, serves bool // at the timeout, before it is decided
	}{
		{"etcd has not answered", false, true},
		{"the stored objects are read", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, served := undecided(), make(chan struct{})
				if c.examining {
					close(r.examining)
				}
				go func() {
					defer close(served)
					r.await(t.Context(), time.After(time.Second))
				}()
				serves := func() bool {
					synctest.Wait()
					select {
					case <-served:
						return true
					default:
						return false
					}
				}
				if serves() {
					t.Error("it serves before the timeout")
				}
				<-time.After(time.Minute)
				if got := serves(); got != c.serves {
					t.Errorf("it serves after the timeout: %v", got)
				}
				close(r.done)
				if !serves() {
					t.Error("it does not serve when it is decided")
				}
			})
		})
	}
}

func TestAServerIsNotReadyBeforeItMayServeWhatIsStored(t *testing.T) {
	r := undecided()
	if err := r.Check(nil); err == nil {
		t.Error("it is ready before it is decided")
	}
	close(r.done)
	if err := r.Check(nil); err != nil {
		t.Errorf("it may serve: %v", err)
	}
	r.refused = errors.New("it would lose a field")
	if err := r.Check(nil); !errors.Is(err, r.refused) {
		t.Errorf("it must not serve: %v", err)
	}
}

func TestNothingIsWrittenBeforeTheReleaseMayServeWhatIsStored(t *testing.T) {
	r := undecided()
	unavailable := func(state string) {
		t.Helper()
		err := r.writable()
		if seconds, retry := apierrors.SuggestsClientDelay(err); !apierrors.IsServiceUnavailable(err) || !retry || seconds < 1 {
			t.Errorf("%s: %v", state, err)
		}
	}
	unavailable("before it is decided")
	r.refused = errors.New("it would lose a field")
	close(r.done)
	unavailable("it must not serve")
	r.refused = nil
	if err := r.writable(); err != nil {
		t.Errorf("it may serve: %v", err)
	}
}

// failingKV is an etcd whose next answers are errors, and then an empty one.
type failingKV struct {
	clientv3.KV
	errs []string
}

func (f *failingKV) Get(ctx context.Context, _ string, _ ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if len(f.errs) == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	err := errors.New(f.errs[0])
	f.errs = f.errs[1:]
	return nil, err
}

func TestWhyItIsNotDecidedYetIsReportedAndLoggedWhenItChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
		logged := func() string { return logger.GetSink().(ktesting.Underlier).GetBuffer().String() }
		r := undecided()
		r.clock = clock.RealClock{}
		r.keeper = &record.Keeper{KV: &failingKV{errs: []string{"etcd is away", "etcd is away", "etcd has no leader", "etcd is away"}}}
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.check(ctx, func() { t.Error("the release is refused") })
		}()
		for i, want := range []struct {
			reason string
			lines  int
		}{{"etcd is away", 1}, {"etcd is away", 1}, {"etcd has no leader", 2}, {"etcd is away", 3}} {
			synctest.Wait()
			if err := r.Check(nil); err == nil || !strings.Contains(err.Error(), "not known yet") || !strings.Contains(err.Error(), want.reason) {
				t.Errorf("after %d attempts, the check reports %v, want %q", i+1, err, want.reason)
			}
			if got := strings.Count(logged(), "Failed to decide"); got != want.lines || !strings.Contains(logged(), want.reason) {
				t.Errorf("after %d attempts, there are %d lines, want %d: %s", i+1, got, want.lines, logged())
			}
			<-time.After(checkInterval)
		}
		cancel()
		<-ended
		if err := r.writable(); err == nil {
			t.Error("a server that stops before it is decided may write")
		}
		if got := strings.Count(logged(), "Failed to decide"); got != 3 {
			t.Errorf("a stop is logged: %s", logged())
		}
	})
}

// fullKV is an etcd without a record, which refuses writes until it has space.
type fullKV struct {
	clientv3.KV
	space atomic.Bool
}

func (f *fullKV) Get(context.Context, string, ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return &clientv3.GetResponse{}, nil
}

func (f *fullKV) Txn(context.Context) clientv3.Txn { return fullTxn{etcd: f} }

type fullTxn struct {
	clientv3.Txn
	etcd *fullKV
}

func (x fullTxn) If(...clientv3.Cmp) clientv3.Txn { return x }

func (x fullTxn) Then(...clientv3.Op) clientv3.Txn { return x }

func (x fullTxn) Commit() (*clientv3.TxnResponse, error) {
	if !x.etcd.space.Load() {
		return nil, rpctypes.ErrNoSpace
	}
	return &clientv3.TxnResponse{Succeeded: true}, nil
}

func TestAtAFullEtcdAServerDeletesAndWritesOnceTheRecordIsWritten(t *testing.T) {
	for _, examining := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r, etcd := undecided(), &fullKV{}
			r.clock, r.keeper = clock.RealClock{}, &record.Keeper{KV: etcd}
			if examining {
				close(r.examining)
			}
			if err := r.deletable(); !apierrors.IsServiceUnavailable(err) {
				t.Errorf("before etcd has answered, deletions get %v", err)
			}
			go r.check(t.Context(), func() { t.Error("the release is refused") })
			r.await(t.Context(), time.After(time.Second)) // it begins to serve
			if err := r.writable(); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "space exceeded") {
				t.Errorf("at a full etcd, writes get %v", err)
			}
			if err := errors.Join(r.deletable(), r.Check(nil)); err != nil {
				t.Errorf("at a full etcd, deletions get %v", err)
			}
			etcd.space.Store(true)
			<-time.After(fullInterval)
			synctest.Wait()
			if err := errors.Join(r.writable(), r.deletable(), r.Check(nil)); err != nil {
				t.Errorf("once etcd has space: %v", err)
			}
		})
	}
}

func TestAReleaseThatIsRefusedLaterDeletesNoMore(t *testing.T) {
	r := undecided()
	close(r.full)
	r.refused = errors.New("it would lose a field")
	close(r.done)
	for range 20 { // a select of several closed channels takes any of them
		if err := r.Check(nil); !errors.Is(err, r.refused) || r.deletable() == nil {
			t.Fatalf("it must not serve: %v", err)
		}
	}
}
