package storage

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	clocktesting "k8s.io/utils/clock/testing"

	"svc.dev/svc/apiserver/etcd"
)

// restarted returns a store whose cache was filled after three creations, a
// deletion and a change, and the version before them.
func restarted(t *testing.T, b *Backend) (s storage.Interface, version string) {
	t.Helper()
	before, stop := configMaps(t, b)
	create(t.Context(), t, before, "first")
	first := &corev1.ConfigMap{}
	if err := before.Get(t.Context(), keyOf("first"), storage.GetOptions{}, first); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		create(t.Context(), t, before, name)
	}
	if err := before.Delete(t.Context(), keyOf("b"), &corev1.ConfigMap{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	update := storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
		obj.(*corev1.ConfigMap).Data = map[string]string{"changed": "yes"}
		return obj, nil
	})
	if err := before.GuaranteedUpdate(t.Context(), keyOf("a"), &corev1.ConfigMap{}, false, nil, update, nil); err != nil {
		t.Fatal(err)
	}
	stop()
	s, _ = configMaps(t, b)
	if _, err := list(t.Context(), s, everything); err != nil {
		t.Fatal(err)
	}
	return s, first.ResourceVersion
}

// next returns an event as TYPE NAME.
func next(t *testing.T, w watch.Interface) string {
	t.Helper()
	select {
	case event, more := <-w.ResultChan():
		if !more {
			return "END"
		}
		if event.Type == watch.Error {
			return fmt.Sprintf("ERROR %d", apierrors.FromObject(event.Object).(apierrors.APIStatus).Status().Code)
		}
		if cached, ok := event.Object.(runtime.CacheableObject); ok {
			event.Object = cached.GetObject()
		}
		return fmt.Sprintf("%s %s", event.Type, event.Object.(*corev1.ConfigMap).Name)
	case <-time.After(time.Minute):
		return "no event"
	}
}

func TestAWatchFromBeforeTheCachesHistoryMissesNothing(t *testing.T) {
	for name, b := range backends(t) {
		t.Run(name, func(t *testing.T) {
			s, version := restarted(t, b)
			opts := everything
			opts.ResourceVersion = version
			w, err := s.Watch(t.Context(), "/configmaps/", opts)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			var got []string
			for range 5 {
				got = append(got, next(t, w))
			}
			const want = "ADDED a, ADDED b, ADDED c, DELETED b, MODIFIED a"
			if events := strings.Join(got, ", "); events != want {
				t.Fatalf("received %s; want %s", events, want)
			}
			for i := range 200 { // while the watch passes from etcd to the cache
				created := fmt.Sprintf("later%d", i)
				create(t.Context(), t, s, created)
				if got := next(t, w); got != "ADDED "+created {
					t.Fatalf("received %s after the creation of %s", got, created)
				}
			}
		})
	}
}

func TestAWatchFromACompactedVersionIsAnsweredWith410(t *testing.T) {
	b := open(t, startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")}))
	s, version := restarted(t, b)
	now := &corev1.ConfigMapList{}
	if err := s.GetList(t.Context(), "/configmaps/", everything, now); err != nil {
		t.Fatal(err)
	}
	revision, err := storage.APIObjectVersioner{}.ParseResourceVersion(now.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Client().Compact(t.Context(), int64(revision)); err != nil {
		t.Fatal(err)
	}
	opts := everything
	opts.ResourceVersion = version
	w, err := s.Watch(t.Context(), "/configmaps/", opts)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if got := next(t, w); got != "ERROR 410" {
		t.Errorf("received %s", got)
	}
}

func TestStoppingAStoreEndsResumedWatches(t *testing.T) {
	b := open(t, startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")}))
	s, version := restarted(t, b)
	opts := everything
	opts.ResourceVersion = version
	w, err := s.Watch(t.Context(), "/configmaps/", opts)
	if err != nil {
		t.Fatal(err)
	}
	lazyOf(s).stop()
	for next(t, w) != "END" { //nolint:revive // the events before the end
	}
	if _, err := s.Watch(t.Context(), "/configmaps/", opts); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a watch of a stopped store: %v", err)
	}
}

func TestAReaderWaitsForItsCacheWhileTheReadsForItSucceed(t *testing.T) {
	b := open(t, startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")}))
	s, _ := configMaps(t, b)
	create(t.Context(), t, s, "a")
	lazy := lazyOf(s)
	slow := &slowReads{Interface: lazy.config.Storage, release: make(chan struct{})}
	lazy.config.Storage = slow
	ended := make(chan error, 1)
	go func() {
		_, err := list(t.Context(), s, everything)
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("the reader did not wait: %v", err)
	case <-time.After(fillTimeout + time.Second):
	}
	close(slow.release)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// slowReads holds lists until it is released.
type slowReads struct {
	storage.Interface
	release chan struct{}
}

func (s *slowReads) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	<-s.release
	return s.Interface.GetList(ctx, key, opts, list)
}

func TestObjectsOfTypesWithACacheAreCountedEveryMinute(t *testing.T) {
	fake := clocktesting.NewFakeClock(time.Now())
	b, err := Open(Config{Servers: startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")}).Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	s, _ := configMaps(t, b)
	unread, _ := storeOf(t, b, "secrets")
	create(t.Context(), t, s, "a")
	create(t.Context(), t, s, "b")
	if err := unread.Create(t.Context(), "/secrets/default/s", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "default"}}, &corev1.Secret{}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := list(t.Context(), s, everything); err != nil {
		t.Fatal(err)
	}
	b.config.Clock = fake // the cache keeps the machine's
	type count struct {
		resource string
		stats    storage.Stats
	}
	counts := make(chan count, 10)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.CountObjects(ctx, func(resource string, stats storage.Stats) { counts <- count{resource, stats} })
	}()
	for range 2 {
		NewWithT(t).Eventually(fake.HasWaiters, time.Minute).Should(BeTrue())
		fake.Step(countInterval)
		got := <-counts
		if got.resource != "configmaps" || got.stats.ObjectCount != 2 || got.stats.EstimatedAverageObjectSizeBytes == 0 {
			t.Errorf("counted %+v", got)
		}
	}
	cancel()
	<-done
	if len(counts) > 0 {
		t.Errorf("counted %+v, too", <-counts)
	}
}
