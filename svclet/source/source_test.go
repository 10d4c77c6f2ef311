package source

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"svc.dev/svc/internal/footprint/leaks"
	"svc.dev/svc/svclet/apifake"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// fixture runs sources and records their updates.
type fixture struct {
	*Sources
	t       *testing.T
	updates chan Update
	// pods are the desired pods by name.
	pods map[string]*corev1.Pod
}

func run(t *testing.T, o Options) *fixture {
	t.Helper()
	o.NodeName = "n"
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	r := &fixture{Sources: s, t: t, updates: make(chan Update), pods: map[string]*corev1.Pod{}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx, r.updates) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return r
}

// next receives the next update.
func (r *fixture) next() Update {
	r.t.Helper()
	select {
	case u := <-r.updates:
		for _, pod := range u.Removed {
			delete(r.pods, pod.Name)
		}
		for _, pod := range u.Set {
			r.pods[pod.Name] = pod
		}
		return u
	case <-time.After(time.Minute):
		r.t.Fatal("no update comes")
		return Update{}
	}
}

// quiet checks that no update is pending.
func (r *fixture) quiet() {
	r.t.Helper()
	select {
	case u := <-r.updates:
		r.t.Errorf("an empty update: %s", shape(u))
	default:
	}
}

// shape returns an update as "api set a b removed c".
func shape(u Update) string {
	names := func(pods []*corev1.Pod) string {
		var all []string
		for _, pod := range pods {
			all = append(all, pod.Name)
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	s := u.Source
	if len(u.Set) > 0 {
		s += " set " + names(u.Set)
	}
	if len(u.Removed) > 0 {
		s += " removed " + names(u.Removed)
	}
	if u.Ready {
		s += " ready"
	}
	return s
}

func (r *fixture) expect(want string) Update {
	r.t.Helper()
	u := r.next()
	if got := shape(u); got != want {
		r.t.Fatalf("got %q, want %q", got, want)
	}
	return u
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return is(), nil })
	if err != nil {
		t.Fatalf("%s: not so", what)
	}
}

func bound(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}},
		Spec:       corev1.PodSpec{NodeName: "n"},
	}
	for _, f := range change {
		f(pod)
	}
	return pod
}

func TestAtLeastOneSourceIsRequired(t *testing.T) {
	for name, c := range map[string]struct {
		o    Options
		says string
	}{
		"none":          {Options{NodeName: "n"}, "no source of pods"},
		"no node":       {Options{Path: "/x"}, "no name"},
		"a wrong URL":   {Options{NodeName: "n", URL: "ftp://user:secret@host/x?token=secret"}, "must begin with http"},
		"no URL at all": {Options{NodeName: "n", URL: "http://user:secret@ho st"}, "cannot be parsed"},
	} {
		if _, err := New(c.o); err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPodsOfTheAPI(t *testing.T) {
	server := apifake.New(t)
	var mu sync.Mutex
	var observed, gone []string
	note := func(to *[]string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			mu.Lock()
			defer mu.Unlock()
			*to = append(*to, pod.Name+" "+string(pod.Status.Phase))
		}
	}
	a := server.Put(bound("a")).(*corev1.Pod)
	server.Put(bound("elsewhere", func(p *corev1.Pod) { p.Spec.NodeName = "m" }))
	r := run(t, Options{Core: server.Core(t), Observed: note(&observed), Gone: note(&gone)})
	r.expect("api set a ready")
	first := r.pods["a"]
	if first.ManagedFields != nil || first.Annotations[SourceAnnotation] != API || first.Annotations[SeenAnnotation] == "" {
		t.Errorf("it is kept as %v", first.ObjectMeta)
	}

	// A status update does not matter to the sources.
	a.Status.Phase = corev1.PodRunning
	a = server.Put(a).(*corev1.Pod)
	await(t, "the status is observed", func() bool { mu.Lock(); defer mu.Unlock(); return slices.Contains(observed, "a Running") })
	r.quiet()

	a.Labels = map[string]string{"l": "1"}
	a = server.Put(a).(*corev1.Pod)
	r.expect("api set a ready")
	if got := r.pods["a"]; got.Annotations[SeenAnnotation] != first.Annotations[SeenAnnotation] || got.Status.Phase != corev1.PodRunning {
		t.Errorf("it is kept as %v", got)
	}
	now := metav1.Now()
	a.DeletionTimestamp = &now
	a = server.Put(a).(*corev1.Pod)
	r.expect("api set a ready")
	server.Remove(a)
	r.expect("api removed a ready")
	if _, ok := r.Pod(a.UID); ok || len(r.Sources.Pods()) != 0 {
		t.Error("it is kept")
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(gone, []string{"a Running"}) {
		t.Errorf("gone: %v", gone)
	}
}

func TestAListFindsWhatTheWatchMissed(t *testing.T) {
	server := apifake.New(t)
	server.Put(bound("stays"))
	lost, old := server.Put(bound("lost")), server.Put(bound("recreated"))
	r := run(t, Options{Core: server.Core(t)})
	r.expect("api set lost recreated stays ready")

	server.Forget(lost)
	server.Forget(old)
	server.Put(bound("new"))
	r.expect("api set new ready")
	// The watch ends, and its resource version has expired.
	expired := true
	server.Fail(func(req apifake.Request) error {
		if req.Verb == "watch" && expired {
			return errExpired
		}
		if req.Verb == "list" {
			expired = false
		}
		return nil
	})
	fresh := server.Put(bound("recreated")).(*corev1.Pod)
	r.expect("api set recreated ready")
	server.EndWatches()
	u := r.expect("api removed lost recreated ready")
	if r.Sources.Ready(); len(u.Removed) != 2 {
		t.Error(shape(u))
	}
	if pod, ok := r.Pod(fresh.UID); !ok || pod.Name != "recreated" {
		t.Error("the recreated pod is not among the pods")
	}
}

func TestUpdatesAreNotReadyBeforeEverySourceHasAnswered(t *testing.T) {
	server := apifake.New(t)
	var mu sync.Mutex
	away := true
	server.Fail(func(apifake.Request) error {
		mu.Lock()
		defer mu.Unlock()
		if away {
			return apifake.ErrDrop
		}
		return nil
	})
	r := run(t, Options{Core: server.Core(t), Path: t.TempDir()})
	r.expect("file")
	if r.Ready() {
		t.Error("ready without the API server")
	}
	mu.Lock()
	away = false
	mu.Unlock()
	r.expect("api ready")
	if !r.Ready() {
		t.Error("not ready")
	}
}

func TestThePodsOfAllSourcesAreFoundByUID(t *testing.T) {
	s, err := New(Options{NodeName: "n", Path: "/m", URL: "http://u"})
	if err != nil {
		t.Fatal(err)
	}
	s.updates = make(chan Update, 9)
	pod := func(uid types.UID) *corev1.Pod { return bound(string(uid), func(p *corev1.Pod) { p.UID = uid }) }
	s.replace(t.Context(), File, []*corev1.Pod{pod("a")})
	s.replace(t.Context(), HTTP, []*corev1.Pod{pod("b"), pod("b2"), pod("c")})
	all := s.Pods()
	slices.SortFunc(all, func(a, b *corev1.Pod) int { return cmp.Compare(a.UID, b.UID) })
	if len(all) != 4 {
		t.Errorf("%d pods", len(all))
	}
	if pod, ok := s.Pod("b"); !ok || !IsStatic(pod) || IsMirror(pod) {
		t.Error("b is not found, or not static")
	}
	twin := pod("c")
	twin.UID = "twin"
	s.replace(t.Context(), HTTP, []*corev1.Pod{pod("c"), twin})
	if _, ok := s.Pod("twin"); ok {
		t.Error("two pods of one name")
	}
}
