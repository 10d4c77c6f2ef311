package storage

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	clocktesting "k8s.io/utils/clock/testing"

	"svc.dev/svc/apiserver/etcd"
)

func TestEventsTakeAsMuchOfTheWindowAsOfTheLimit(t *testing.T) {
	begin := time.Unix(1_700_000_000, 0)
	clock := clocktesting.NewFakePassiveClock(begin)
	h := &history{clock: clock, window: 75 * time.Second, limit: 1000}
	for i, step := range []struct {
		passes time.Duration // before the event
		size   int
		want   time.Duration // of the record time, since the beginning
	}{
		{0, 10, 0},
		{time.Second, 500, time.Second}, // the time is up
		{0, 500, 38500 * time.Millisecond},
		{0, 10, 76 * time.Second}, // later than the clock, by 75 s
		{0, 2000, 76*time.Second + 750*time.Millisecond},
		{70 * time.Second, 10, 226*time.Second + 750*time.Millisecond},  // by 155.75 s
		{60 * time.Second, 10, 227*time.Second + 500*time.Millisecond},  // the pause makes up for the window
		{60 * time.Second, 10, 271*time.Second + 750*time.Millisecond},  // what is left of it counts
		{100 * time.Second, 10, 347*time.Second + 750*time.Millisecond}, // no more than the window
		{231 * time.Second, 10, 522 * time.Second},                      // the clock again
		{time.Second, 10, 523 * time.Second},
	} {
		clock.SetTime(clock.Now().Add(step.passes))
		if got := h.record(step.size).Sub(begin); got != step.want {
			t.Errorf("event %d: recorded at %s, want %s", i, got, step.want)
		}
	}
}

func TestBurstsBelowTheLimitKeepTheWholeWindow(t *testing.T) {
	begin := time.Unix(1_700_000_000, 0)
	clock := clocktesting.NewFakePassiveClock(begin)
	h := &history{clock: clock, window: 75 * time.Second, limit: 1000}
	for range 20 { // 400 bytes in 30 s, at once: as many as the limit has for that time
		if got, want := h.record(100), clock.Now(); !got.Equal(want) {
			t.Fatalf("the burst of %s is recorded at %s", want.Sub(begin), got.Sub(begin))
		}
		for range 3 {
			h.record(100)
		}
		clock.SetTime(clock.Now().Add(30 * time.Second))
	}
}

func TestTheHistoryIsBoundedByBytes(t *testing.T) {
	member := startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")})
	const events = 250 // more than the library's least number, less than twice of it twice
	for rule, test := range map[string]struct {
		limit int
		kept  bool // whether a watch can start at the first event
	}{
		"without a bound":                {0, true},
		"they fit":                       {DefaultHistoryBytes, true},
		"they exceed the bound":          {100, false},
		"their objects fit, they do not": {200 << 10, false},
	} {
		t.Run(rule, func(t *testing.T) {
			b, err := Open(Config{Servers: member.Endpoints(), Prefix: fmt.Sprintf("/limit-%d", test.limit), HistoryBytes: test.limit})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = b.Close() })
			s, _ := configMaps(t, b)
			found := &corev1.ConfigMapList{}
			if err := s.GetList(t.Context(), "/configmaps/", everything, found); err != nil {
				t.Fatal(err)
			}
			for i := range events {
				create(t.Context(), t, s, fmt.Sprintf("c%03d", i))
			}
			if err := s.Delete(t.Context(), keyOf("c000"), &corev1.ConfigMap{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if names, err := list(t.Context(), s, everything); err != nil || len(names) != events*5-6 {
				t.Fatalf("listed %q, %v", names, err)
			}
			opts := everything
			opts.ResourceVersion = found.ResourceVersion
			expectFirst(t, s, opts, test.kept)
		})
	}
}

// expectFirst watches, and fails the test unless the first event is the first creation
// or, if that is no longer kept, an error that tells the client to list again.
func expectFirst(t *testing.T, s storage.Interface, opts storage.ListOptions, kept bool) {
	t.Helper()
	w, err := s.Watch(t.Context(), "/configmaps/", opts)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	event := <-w.ResultChan()
	if !kept {
		if status, ok := event.Object.(*metav1.Status); event.Type != watch.Error || !ok || status.Reason != metav1.StatusReasonExpired {
			t.Errorf("got %s %v (%v)", event.Type, event.Object, apierrors.FromObject(event.Object))
		}
		return
	}
	if c, ok := event.Object.(*corev1.ConfigMap); event.Type != watch.Added || !ok || c.Name != "c000" || c.ResourceVersion == "" {
		t.Errorf("got %s %#v", event.Type, event.Object)
	}
}
