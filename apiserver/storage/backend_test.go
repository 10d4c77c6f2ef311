package storage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"

	"svc.dev/svc/apis"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/etcd"
	"svc.dev/svc/apiserver/gates"
)

// TestMain gives tests the feature gates of the product.
func TestMain(m *testing.M) {
	if err := gates.Set(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func startEtcd(t testing.TB, config etcd.Config) *etcd.Server {
	t.Helper()
	member, err := etcd.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(member.Stop)
	return member
}

func open(t testing.TB, member *etcd.Server) *Backend {
	t.Helper()
	b, err := Open(Config{Servers: member.Endpoints(), SharedWatches: true, PartWatches: true, HistoryBytes: DefaultHistoryBytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// storeOf makes the store of a namespaced kind of the core group, and the function
// that stops it.
func storeOf(t testing.TB, b *Backend, plural string) (storage.Interface, func()) {
	t.Helper()
	kinds := slices.DeleteFunc(apis.Kinds(), func(k *resource.Kind) bool { return k.Name != plural })
	scheme, err := apis.NewScheme(kinds)
	if err != nil {
		t.Fatal(err)
	}
	options, err := b.RESTOptions(KindCodec(scheme, kinds)).GetRESTOptions(kinds[0].Resource(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s, destroy, err := options.Decorator(options.StorageConfig, options.ResourcePrefix,
		func(obj runtime.Object) (string, error) {
			m, err := meta.Accessor(obj)
			return "/" + plural + "/default/" + m.GetName(), err
		},
		kinds[0].New, kinds[0].NewList,
		func(obj runtime.Object) (labels.Set, fields.Set, error) {
			m, err := meta.Accessor(obj)
			return nil, fields.Set{"metadata.name": m.GetName()}, err
		},
		nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(destroy)
	return s, destroy
}

// configMaps makes the store of config maps.
func configMaps(t testing.TB, b *Backend) (storage.Interface, func()) {
	t.Helper()
	return storeOf(t, b, "configmaps")
}

func keyOf(name string) string { return "/configmaps/default/" + name }

func create(ctx context.Context, t testing.TB, s storage.Interface, name string) {
	t.Helper()
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	if err := s.Create(ctx, keyOf(name), c, &corev1.ConfigMap{}, 0); err != nil {
		t.Fatal(err)
	}
}

var everything = storage.ListOptions{Recursive: true, Predicate: storage.Everything}

func list(ctx context.Context, s storage.Interface, opts storage.ListOptions) (string, error) {
	found := &corev1.ConfigMapList{}
	err := s.GetList(ctx, "/configmaps/", opts, found)
	var names []string
	for _, c := range found.Items {
		names = append(names, c.Name)
	}
	return strings.Join(names, " "), err
}

// lazyOf returns the cache of a store.
func lazyOf(s storage.Interface) *lazyCache { return s.(translatedErrors).Interface.(*lazyCache) }

func TestTheFirstListOrWatchMakesTheCache(t *testing.T) {
	b := open(t, startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")}))
	for rule, test := range map[string]struct {
		use  func(s storage.Interface) error
		want bool
	}{
		"not by a creation": {func(s storage.Interface) error {
			return s.Create(t.Context(), keyOf("x"), &corev1.ConfigMap{}, &corev1.ConfigMap{}, 0)
		}, false},
		"not by a read": {func(s storage.Interface) error {
			return s.Get(t.Context(), keyOf("none"), storage.GetOptions{IgnoreNotFound: true}, &corev1.ConfigMap{})
		}, false},
		"not by a check": {func(s storage.Interface) error { return s.ReadinessCheck() }, false},
		"by a list": {func(s storage.Interface) error {
			_, err := list(t.Context(), s, everything)
			return err
		}, true},
		"by a watch": {func(s storage.Interface) error {
			w, err := s.Watch(t.Context(), "/configmaps/", everything)
			if err == nil {
				w.Stop()
			}
			return err
		}, true},
	} {
		t.Run(rule, func(t *testing.T) {
			s, _ := configMaps(t, b)
			if err := test.use(s); err != nil {
				t.Fatal(err)
			}
			if got := lazyOf(s).opened.Load() != nil; got != test.want {
				t.Errorf("made: %v", got)
			}
		})
	}
}

func TestWatchesAreSharedOnlyIfTheyAreConfiguredToBe(t *testing.T) {
	for _, shared := range []bool{true, false} {
		b, err := Open(Config{Servers: []string{"unix:///nowhere"}, SharedWatches: shared})
		if err != nil {
			t.Fatal(err)
		}
		s, destroy := configMaps(t, b)
		if got := lazyOf(s).watches != nil; got != shared {
			t.Errorf("SharedWatches is %v: shared %v", shared, got)
		}
		destroy()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestConcurrentFirstReadersShareOneCache(t *testing.T) {
	b := open(t, startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")}))
	s, _ := configMaps(t, b)
	create(t.Context(), t, s, "a")
	const readers = 32
	caches := make([]*openCache, readers)
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range readers {
		all.Go(func() {
			<-start
			if got, err := list(t.Context(), s, everything); got != "a" || err != nil {
				t.Errorf("listed %q, %v", got, err)
			}
			caches[i] = lazyOf(s).opened.Load()
		})
	}
	close(start)
	all.Wait()
	if slices.Contains(caches, nil) || len(slices.Compact(caches)) != 1 {
		t.Error("the readers had several caches")
	}
}

func TestReadsAgreeBeforeAndAfterTheCacheIsMade(t *testing.T) {
	b := open(t, startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")}))
	s, _ := configMaps(t, b)
	create(t.Context(), t, s, "a")
	before, after := &corev1.ConfigMap{}, &corev1.ConfigMap{}
	if err := s.Get(t.Context(), keyOf("a"), storage.GetOptions{}, before); err != nil {
		t.Fatal(err)
	}
	if got, err := list(t.Context(), s, everything); got != "a" || err != nil {
		t.Fatalf("listed %q, %v", got, err)
	}
	if err := s.Get(t.Context(), keyOf("a"), storage.GetOptions{}, after); err != nil {
		t.Fatal(err)
	}
	if before.ResourceVersion == "" || before.ResourceVersion != after.ResourceVersion || before.Name != after.Name {
		t.Errorf("before %v, after %v", before, after)
	}
	// What is written later is listed at once.
	for i := range 20 {
		name := fmt.Sprintf("b%02d", i)
		create(t.Context(), t, s, name)
		if got, err := list(t.Context(), s, everything); err != nil || !strings.HasSuffix(got, name) {
			t.Fatalf("after the creation of %s: %q, %v", name, got, err)
		}
	}
	deleted := &corev1.ConfigMap{}
	if err := s.Delete(t.Context(), keyOf("a"), deleted, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Get(t.Context(), keyOf("a"), storage.GetOptions{}, after); !storage.IsNotFound(err) {
		t.Errorf("after the deletion: %v", err)
	}
}

func TestAWatchFromBeforeTheCacheWasMadeMissesNothing(t *testing.T) {
	b := open(t, startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")}))
	s, _ := configMaps(t, b)
	create(t.Context(), t, s, "a")
	first := &corev1.ConfigMap{}
	if err := s.Get(t.Context(), keyOf("a"), storage.GetOptions{}, first); err != nil {
		t.Fatal(err)
	}
	opts := everything
	opts.ResourceVersion = first.ResourceVersion
	w, err := s.Watch(t.Context(), "/configmaps/", opts)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	create(t.Context(), t, s, "b")
	event := <-w.ResultChan()
	if cached, ok := event.Object.(runtime.CacheableObject); ok {
		event.Object = cached.GetObject()
	}
	if c, ok := event.Object.(*corev1.ConfigMap); event.Type != watch.Added || !ok || c.Name != "b" {
		t.Errorf("watched %v", event)
	}
}

func TestAStoppedStoreRefusesReadersAndEndsWatches(t *testing.T) {
	b := open(t, startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")}))
	s, stop := configMaps(t, b)
	w, err := s.Watch(t.Context(), "/configmaps/", everything)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	for range w.ResultChan() { //nolint:revive // until it is closed
	}
	stop()

	unused, stop := configMaps(t, b)
	stop()
	if _, err := list(t.Context(), unused, everything); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a list on a stopped store: %v", err)
	}
	if _, err := unused.Watch(t.Context(), "/configmaps/", everything); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a watch on a stopped store: %v", err)
	}
}

func TestStoppingWhileReadersFillTheCacheEndsThem(t *testing.T) {
	member := startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")})
	b := open(t, member)
	s, stop := configMaps(t, b)
	member.Stop() // so that the cache cannot be filled
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := list(ctx, s, everything)
		ended <- err
	}()
	NewWithT(t).Eventually(lazyOf(s).opened.Load, time.Minute).ShouldNot(BeNil())
	stop()
	cancel()
	if err := <-ended; err == nil {
		t.Error("the reader got an answer")
	}
}

func TestCheckReportsTheFaultAndPassesAfterItsEnd(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etcd")
	member := startEtcd(t, etcd.Config{Dir: dir})
	b := open(t, member)
	awaitHealthy(t, b)
	member.Stop()
	if err := b.check(t.Context()); err == nil || !strings.Contains(err.Error(), "etcd at ["+member.Endpoints()[0]+"] does not answer") {
		t.Errorf("etcd is away: %v", err)
	}
	startEtcd(t, etcd.Config{Dir: dir})
	awaitHealthy(t, b)
}

// awaitHealthy returns when the check passes, which a slow etcd may fail at first.
func awaitHealthy(t *testing.T, b *Backend) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for err := b.Check(ctx); err != nil; err = b.Check(ctx) {
		if ctx.Err() != nil {
			t.Fatalf("a healthy etcd: %v", err)
		}
	}
}

func TestAnEtcdThatHasReachedItsQuotaIsHealthyAndTheLogSaysSo(t *testing.T) {
	b := open(t, startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd"), Quota: 1 << 20}))
	configs, _ := configMaps(t, b)
	create(t.Context(), t, configs, "a")
	var err error
	// The size that the quota bounds is that of what has been committed.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := 0; err == nil && ctx.Err() == nil; i++ {
		_, err = b.Client().Put(t.Context(), fmt.Sprintf("/key/%d", i), strings.Repeat("x", 200<<10))
	}
	if err == nil {
		t.Fatal("the quota was not reached")
	}
	var log strings.Builder
	logged := klog.NewContext(t.Context(), funcr.New(func(_, line string) { log.WriteString(line + "\n") }, funcr.Options{}))
	for range 2 {
		if err := b.check(logged); err != nil {
			t.Errorf("the check fails: %v", err)
		}
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "alarm NOSPACE") || !strings.Contains(got, "disarm the alarm") {
		t.Errorf("logged %q, want one line", got)
	}
	if err := configs.Delete(t.Context(), keyOf("a"), &corev1.ConfigMap{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err != nil {
		t.Errorf("an object cannot be deleted: %v", err)
	}
	log.Reset()
	if _, err := b.Client().AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	if err := b.check(logged); err != nil || !strings.Contains(log.String(), "accepts writes again") {
		t.Errorf("after the end of the alarm: %v, logged %q", err, log.String())
	}
}

func TestKeysLieBelowThePrefixAndTheGroup(t *testing.T) {
	member := startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")})
	b, err := Open(Config{Servers: member.Endpoints(), Prefix: "/elsewhere"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	s, _ := configMaps(t, b)
	create(t.Context(), t, s, "a")
	stored, err := b.Client().Get(t.Context(), "/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	if len(stored.Kvs) != 1 || string(stored.Kvs[0].Key) != "/elsewhere/configmaps/default/a" {
		t.Errorf("stored %v", stored.Kvs)
	}
	for gr, want := range map[string]string{"configmaps": "/configmaps", "events.events.k8s.io": "/events.k8s.io/events"} {
		name, group, _ := strings.Cut(gr, ".")
		if got := keyPrefix(schema.GroupResource{Group: group, Resource: name}); got != want {
			t.Errorf("%s lies at %s", gr, got)
		}
	}
}

func TestOpenRefusesInvalidConfigurations(t *testing.T) {
	for rule, test := range map[string]struct {
		config Config
		want   string
	}{
		"no servers":                    {Config{}, "--etcd-servers"},
		"a CA file that does not exist": {Config{Servers: []string{"https://127.0.0.1:1"}, TrustedCAFile: "/nowhere"}, "--etcd-cafile"},
	} {
		t.Run(rule, func(t *testing.T) {
			if _, err := Open(test.config); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestClosingABackendDoesNotStopAnotherOfTheSameEtcd(t *testing.T) {
	member := startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")})
	a, b := open(t, member), open(t, member)
	if a.main.compactor == b.main.compactor {
		t.Error("two backends share a compactor: closing the first stops it for both")
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	s, _ := configMaps(t, b)
	create(t.Context(), t, s, "a")
}

func TestAFileWithoutCertificatesIsRefusedAsCAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, []byte("-----BEGIN RUBBISH-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(Config{Servers: []string{"https://127.0.0.1:1"}, TrustedCAFile: file})
	if err == nil || !strings.Contains(err.Error(), "--etcd-cafile: ") || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v, want an error that names the flag and the file", err)
	}
}
