package storage

import (
	"context"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"svc.dev/svc/apiserver/etcd"
)

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

func TestAListOfATypeThatCannotBeReadReportsWhyWithoutAnotherWait(t *testing.T) {
	b := open(t, startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")}))
	const key = "/registry/configmaps/default/a"
	if _, err := b.Client().Put(t.Context(), key, "k8s:enc:secretbox:v1:a:text"); err != nil {
		t.Fatal(err)
	}
	s, _ := configMaps(t, b)
	for i := range 3 {
		began := time.Now()
		_, err := list(t.Context(), s, everything)
		if err == nil || !strings.Contains(err.Error(), "identity transformer tried to read encrypted data") {
			t.Errorf("list %d: %v", i, err)
		}
		if took := time.Since(began); i > 0 && took >= fillTimeout {
			t.Errorf("list %d took %v", i, took)
		}
	}
	if _, err := b.Client().Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	create(t.Context(), t, s, "b")
	if got, err := list(t.Context(), s, everything); got != "b" || err != nil {
		t.Errorf("listed %q, %v", got, err)
	}
	NewWithT(t).Eventually(func() bool {
		_, err := list(t.Context(), s, everything)
		return err == nil && lazyOf(s).opened.Load().filled.Load()
	}, "1m").Should(BeTrue(), "the cache is used again")
}

func TestObjectsAreCountedWithoutTheirWatchCache(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.SizeBasedListCostEstimate, true)
	b := open(t, startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")}))
	s, _ := configMaps(t, b)
	create(t.Context(), t, s, "a")
	create(t.Context(), t, s, "b")
	if _, err := list(t.Context(), s, everything); err != nil { // makes the cache
		t.Fatal(err)
	}
	lazyOf(s).opened.Load().cacher.Stop()
	create(t.Context(), t, s, "c") // the cache does not see it
	if got := b.Objects(t.Context())[corev1.Resource("configmaps")]; got != 3 {
		t.Errorf("%d objects are counted, want 3", got)
	}
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

func TestTheFirstListOnAnIdleServerReadsOnceAndWaitsForNoWrite(t *testing.T) {
	for name, b := range backends(t) {
		t.Run(name, func(t *testing.T) {
			// The newest version is that of another type, whose cache exists.
			maps, _ := storeOf(t, b, "configmaps")
			create(t.Context(), t, maps, "a")
			if _, err := list(t.Context(), maps, everything); err != nil {
				t.Fatal(err)
			}
			secrets, _ := storeOf(t, b, "secrets")
			lazy := lazyOf(secrets)
			counted := &countedReads{Interface: lazy.config.Storage}
			lazy.config.Storage = counted
			if err := secrets.GetList(t.Context(), "/secrets/", everything, &corev1.SecretList{}); err != nil {
				t.Fatal(err)
			}
			if lists, progress := counted.lists.Load(), counted.progress.Load(); lists != 1 || progress != 0 {
				t.Errorf("the first list took %d reads of etcd and %d requests of progress", lists, progress)
			}
		})
	}
}

// countedReads counts the reads for a cache, and its requests of progress, which it makes while
// a reader waits for a version.
type countedReads struct {
	storage.Interface
	lists, progress atomic.Int32
}

func (c *countedReads) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	c.lists.Add(1)
	return c.Interface.GetList(ctx, key, opts, list)
}

func (c *countedReads) RequestWatchProgress(ctx context.Context) error {
	c.progress.Add(1)
	return c.Interface.RequestWatchProgress(ctx)
}
