package storage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"svc.dev/svc/apiserver/etcd"
)

// versionOf returns the version of a config map.
func versionOf(t *testing.T, s storage.Interface, name string) string {
	t.Helper()
	c := &corev1.ConfigMap{}
	if err := s.Get(t.Context(), keyOf(name), storage.GetOptions{}, c); err != nil {
		t.Fatal(err)
	}
	return c.ResourceVersion
}

// watchFrom opens a watch of config maps after a version.
func watchFrom(t *testing.T, s storage.Interface, version string) watch.Interface {
	t.Helper()
	opts := everything
	opts.ResourceVersion = version
	w, err := s.Watch(t.Context(), "/configmaps/", opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

// textOf returns the type of an event and the name of its object, or the code of its error.
func textOf(event watch.Event) string {
	if cached, ok := event.Object.(runtime.CacheableObject); ok {
		event.Object = cached.GetObject()
	}
	switch obj := event.Object.(type) {
	case *corev1.ConfigMap:
		return fmt.Sprintf("%s %s", event.Type, obj.Name)
	case *metav1.Status:
		return fmt.Sprintf("%s %d", event.Type, obj.Code)
	}
	return fmt.Sprintf("%s %T", event.Type, event.Object)
}

func TestAWatchFromAnEarlierVersionThatMakesTheCacheMissesNothing(t *testing.T) {
	b := open(t, startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")}))
	s, _ := configMaps(t, b)
	create(t.Context(), t, s, "a")
	create(t.Context(), t, s, "b")
	from := versionOf(t, s, "b")
	create(t.Context(), t, s, "c")
	if err := s.Delete(t.Context(), keyOf("a"), &corev1.ConfigMap{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w := watchFrom(t, s, from)
	if got, err := list(t.Context(), s, everything); got != "b c" || err != nil {
		t.Errorf("listed %q, %v", got, err)
	}
	create(t.Context(), t, s, "d")
	for _, want := range []string{"ADDED c", "DELETED a", "ADDED d"} {
		if got := textOf(<-w.ResultChan()); got != want {
			t.Errorf("watched %q, want %q", got, want)
		}
	}
}

func TestAWatchFromAVersionThatIsNotAvailableFillsTheCacheAtTheCurrentOne(t *testing.T) {
	b := open(t, startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")}))
	for rule, test := range map[string]struct {
		version func(current int64) int64
		want    string // the event after the creation of two more config maps
	}{
		"a compacted version": {func(current int64) int64 { return current - 1 }, fmt.Sprintf("ERROR %d", http.StatusGone)},
		"a future version":    {func(current int64) int64 { return current + 1 }, fmt.Sprintf("ERROR %d", http.StatusGone)},
	} {
		t.Run(rule, func(t *testing.T) {
			s, stop := configMaps(t, b)
			defer stop()
			create(t.Context(), t, s, "a")
			current, err := strconv.ParseInt(versionOf(t, s, "a"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.Client().Compact(t.Context(), current); err != nil {
				t.Fatal(err)
			}
			w := watchFrom(t, s, strconv.FormatInt(test.version(current), 10))
			if got, err := list(t.Context(), s, everything); got != "a" || err != nil {
				t.Errorf("listed %q, %v", got, err)
			}
			create(t.Context(), t, s, "b")
			create(t.Context(), t, s, "later")
			if got := textOf(<-w.ResultChan()); got != test.want {
				t.Errorf("watched %q, want %q", got, test.want)
			}
			for _, name := range []string{"a", "b", "later"} {
				if err := s.Delete(t.Context(), keyOf(name), &corev1.ConfigMap{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestAWatchFromAVersionThatIsNoNumberMakesNoCache(t *testing.T) {
	b := open(t, startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")}))
	s, _ := configMaps(t, b)
	opts := everything
	opts.ResourceVersion = "x"
	if _, err := s.Watch(t.Context(), "/configmaps/", opts); err == nil || !strings.Contains(err.Error(), "x") {
		t.Errorf("error %v", err)
	}
	if lazyOf(s).opened.Load() != nil {
		t.Error("the cache was made")
	}
}

// lateWatcher is a client of etcd that creates watches when it is released.
type lateWatcher struct {
	clientv3.Watcher
	release chan struct{}
	created atomic.Bool
	t       *testing.T
}

func (l *lateWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	<-l.release
	events := l.Watcher.Watch(ctx, key, opts...)
	l.created.Store(true)
	return events
}

func (l *lateWatcher) RequestProgress(ctx context.Context) error {
	if !l.created.Load() {
		l.t.Error("progress was requested before the watch was created: the answer may go to the watch")
	}
	return l.Watcher.RequestProgress(ctx)
}

// observedProgress is the store below a cache; it sends the cache's requests of progress
// to a channel.
type observedProgress struct {
	storage.Interface
	requests chan struct{}
}

func (o *observedProgress) RequestWatchProgress(ctx context.Context) error {
	err := o.Interface.RequestWatchProgress(ctx)
	select {
	case o.requests <- struct{}{}:
	case <-ctx.Done():
	}
	return err
}

func TestProgressIsRequestedOnlyWhileEtcdHasTheWatch(t *testing.T) {
	for name, b := range backends(t) {
		t.Run(name, func(t *testing.T) {
			late := &lateWatcher{Watcher: b.main.client.Watcher.(reportingWatcher).Watcher, release: make(chan struct{}), t: t}
			b.main.client.Watcher = reportingWatcher{late}
			s, _ := configMaps(t, b)
			create(t.Context(), t, s, "a")
			from := versionOf(t, s, "a")
			create(t.Context(), t, s, "b")
			lazy := lazyOf(s)
			observed := &observedProgress{Interface: lazy.config.Storage, requests: make(chan struct{})}
			lazy.config.Storage = observed
			w := watchFrom(t, s, from)
			ended := make(chan error, 1)
			go func() {
				got, err := list(t.Context(), s, everything)
				if err == nil && got != "a b" {
					err = fmt.Errorf("listed %q", got)
				}
				ended <- err
			}()
			<-observed.requests
			<-observed.requests
			close(late.release)
			for done := false; !done; {
				select {
				case <-observed.requests:
				case err := <-ended:
					if err != nil {
						t.Error(err)
					}
					done = true
				}
			}
			if got := textOf(<-w.ResultChan()); got != "ADDED b" {
				t.Errorf("watched %q", got)
			}
		})
	}
}

// failingLists fails the reads for a cache by its script, and then none.
type failingLists struct {
	storage.Interface
	script   []error
	versions []string
	during   func()
}

func (l *failingLists) GetList(_ context.Context, _ string, opts storage.ListOptions, _ runtime.Object) error {
	l.versions = append(l.versions, opts.ResourceVersion)
	l.during()
	if len(l.script) == 0 {
		return nil
	}
	err := l.script[0]
	l.script = l.script[1:]
	return err
}

func TestTheFirstVersionOfACacheIsKeptUntilItsFirstFillHasAnAnswer(t *testing.T) {
	gone, away := apierrors.NewResourceExpired("compacted"), errors.New("etcd is away")
	for rule, test := range map[string]struct {
		script []error
		want   []string
	}{
		"at once":                     {nil, []string{"7", ""}},
		"after an etcd that was away": {[]error{away, away}, []string{"7", "7", "7", ""}},
		"that is compacted":           {[]error{gone}, []string{"7", "", ""}},
	} {
		t.Run(rule, func(t *testing.T) {
			lists := &failingLists{script: test.script}
			own := (&streams{}).wrap(lists)
			// While a fill goes on, the one before decides whether readers wait for it.
			lists.during = func() {
				if own.failed.Load() && !errors.Is(test.script[0], away) {
					t.Error("a read that has not ended counts as failed")
				}
			}
			version := "7"
			own.first.Store(&version)
			for filled := 0; filled < 2; {
				if err := own.GetList(t.Context(), "/configmaps/", storage.ListOptions{}, &corev1.ConfigMapList{}); err == nil {
					filled++
				} else if !own.failed.Load() {
					t.Errorf("the failure is not recorded: %v", err)
				}
			}
			if !slices.Equal(lists.versions, test.want) {
				t.Errorf("read at %q, want %q", lists.versions, test.want)
			}
		})
	}
}
