package status

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"svc.dev/svc/internal/footprint/leaks"
	"svc.dev/svc/svclet/apifake"
	"svc.dev/svc/svclet/source"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// fixture is a manager with a fake API server.
type fixture struct {
	*Manager
	t      *testing.T
	server *apifake.Server
}

func start(t *testing.T) *fixture {
	server := apifake.New(t)
	m := New(Options{Core: server.Core(t)})
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	running.Go(func() { m.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return &fixture{Manager: m, t: t, server: server}
}

// pod creates a pod in the API server and passes it to the manager.
func (r *fixture) pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	for _, f := range change {
		f(pod)
	}
	pod = r.server.Put(pod).(*corev1.Pod)
	r.Observed(pod)
	return pod
}

func deleted(pod *corev1.Pod) { pod.DeletionTimestamp = &earlier }

func (r *fixture) await(what string, is func() bool) {
	r.t.Helper()
	err := wait.PollUntilContextTimeout(r.t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return is(), nil })
	if err != nil {
		r.t.Fatalf("%s: not so; requests: %v", what, r.server.Requests())
	}
}

func (r *fixture) awaitPhase(name string, phase corev1.PodPhase) {
	r.t.Helper()
	r.await(name+" is "+string(phase), func() bool {
		pod := r.server.Pod("ns", name)
		return pod != nil && pod.Status.Phase == phase
	})
}

// idle waits until the manager has nothing to do.
func (r *fixture) idle() {
	r.t.Helper()
	r.await("the manager is idle", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.busy == 0 && len(r.queue) == 0
	})
}

func phase(p corev1.PodPhase) corev1.PodStatus { return corev1.PodStatus{Phase: p} }

func TestOnlyChangesAreWrittenAndOnce(t *testing.T) {
	r := start(t)
	pod := r.pod("a")
	r.Set(pod, phase(corev1.PodRunning))
	r.awaitPhase("a", corev1.PodRunning)
	r.idle()
	r.Set(pod, phase(corev1.PodRunning))
	r.Observed(r.server.Pod("ns", "a"))
	r.idle()
	if got := r.server.Requests(); len(got) != 1 || got[0].String() != "patch pods/status ns/a" {
		t.Errorf("requests: %v", got)
	}
	if s, ok := r.Status(pod.UID); !ok || s.StartTime == nil {
		t.Errorf("status: %v %v", s, ok)
	}
}

func TestWhatTheServerDropsIsWrittenOnce(t *testing.T) {
	r := start(t)
	r.server.Drop(func(o apifake.Object) { o.(*corev1.Pod).Status.ObservedGeneration = 0 })
	pod := r.pod("a", func(p *corev1.Pod) { p.Generation = 1 })
	r.Set(pod, phase(corev1.PodRunning))
	r.awaitPhase("a", corev1.PodRunning)
	r.idle()
	// A write that changes nothing in the API server.
	pod = pod.DeepCopy()
	pod.Generation = 2
	r.Set(pod, phase(corev1.PodRunning))
	r.idle()
	// A change by another writer.
	changed := r.server.Pod("ns", "a").DeepCopy()
	changed.Labels = map[string]string{"a": "b"}
	r.Observed(r.server.Put(changed).(*corev1.Pod))
	r.idle()
	if got := r.server.Requests(); len(got) != 2 {
		t.Errorf("%d requests, want 2", len(got))
	}
	changed = changed.DeepCopy()
	changed.Status.Phase = corev1.PodPending
	r.Observed(r.server.Put(changed).(*corev1.Pod))
	r.awaitPhase("a", corev1.PodRunning)
}

func TestNothingIsWrittenAfterARestartWithoutChanges(t *testing.T) {
	r := start(t)
	pod := r.pod("a")
	r.Set(pod, phase(corev1.PodRunning))
	r.awaitPhase("a", corev1.PodRunning)
	r.idle()
	r.server.Requests()

	again := New(Options{Core: r.server.Core(t)})
	pod = r.server.Pod("ns", "a")
	again.Observed(pod)
	again.Set(pod, phase(corev1.PodRunning))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	again.Run(ctx)
	if got := r.server.Requests(); len(got) != 0 {
		t.Errorf("requests: %v", got)
	}
}

func TestTheNewestOfManyChangesIsWritten(t *testing.T) {
	r := start(t)
	pod := r.pod("a")
	entered, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.server.Fail(func(apifake.Request) error {
		once.Do(func() {
			close(entered)
			<-release
		})
		return nil
	})
	status := phase(corev1.PodRunning)
	r.Set(pod, status)
	<-entered
	for i := range 5 {
		status.Message = fmt.Sprint(i)
		r.Set(pod, status)
	}
	close(release)
	r.await("the newest message is there", func() bool { return r.server.Pod("ns", "a").Status.Message == "4" })
	r.idle()
	if got := r.server.Requests(); len(got) != 2 {
		t.Errorf("requests: %v", got)
	}
}

func TestAnOutageLosesNoStatusAndDoesNotOverloadTheServer(t *testing.T) {
	r := start(t)
	var mu sync.Mutex
	away, attempts := true, 0
	r.server.Fail(func(apifake.Request) error {
		mu.Lock()
		defer mu.Unlock()
		if attempts++; away {
			return apifake.ErrDrop
		}
		return nil
	})
	const pods = 30
	for i := range pods {
		r.Set(r.pod(fmt.Sprint("p", i)), phase(corev1.PodRunning))
	}
	r.await("it was tried a few times", func() bool { mu.Lock(); defer mu.Unlock(); return attempts >= 6 })
	mu.Lock()
	// The first ones were in flight together, the others one at a time with a growing
	// back-off: the last one after half a minute.
	if attempts > 15 {
		t.Errorf("%d attempts at once", attempts)
	}
	away = false
	mu.Unlock()
	for i := range pods {
		r.awaitPhase(fmt.Sprint("p", i), corev1.PodRunning)
	}
}

func TestAStatusIsWrittenWhenTheServerHasItOrCannotHaveIt(t *testing.T) {
	r := start(t)
	pod := r.pod("a")
	gate, answers := make(chan struct{}), make(chan error, 1)
	r.server.Fail(func(apifake.Request) error {
		<-gate
		select {
		case err := <-answers:
			return err
		default:
			return nil
		}
	})
	if !r.Written(pod.UID) || !r.Written("unknown") {
		t.Error("there is nothing to write")
	}
	r.Set(pod, phase(corev1.PodRunning))
	if r.Written(pod.UID) {
		t.Error("the server has not answered yet")
	}
	answers <- apifake.ErrDrop
	gate <- struct{}{}
	r.await("the server is not available", func() bool { return r.Written(pod.UID) })
	close(gate)
	r.awaitPhase("a", corev1.PodRunning)
	r.idle()
	if !r.Written(pod.UID) {
		t.Error("the server has it")
	}
}

func TestARecreatedPodIsNotWritten(t *testing.T) {
	r := start(t)
	pod := r.pod("a")
	r.server.Forget(pod)
	other := r.server.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}, Status: phase(corev1.PodPending)}).(*corev1.Pod)
	r.Set(pod, phase(corev1.PodRunning))
	r.idle()
	r.Set(pod, phase(corev1.PodFailed))
	r.idle()
	got := r.server.Pod("ns", "a")
	if got.UID != other.UID || got.Status.Phase != corev1.PodPending {
		t.Errorf("the new pod is %v", got.Status)
	}
	if requests := r.server.Requests(); len(requests) != 2 {
		t.Errorf("requests: %v", requests)
	}
}

func TestADeletedPodIsNotWritten(t *testing.T) {
	r := start(t)
	pod := r.pod("a")
	r.server.Forget(pod)
	r.Set(pod, phase(corev1.PodRunning))
	r.idle()
	r.Set(pod, phase(corev1.PodFailed))
	r.idle()
	if requests := r.server.Requests(); len(requests) != 1 {
		t.Errorf("requests: %v", requests)
	}
	r.Forget(pod.UID)
	if _, ok := r.Status(pod.UID); ok {
		t.Error("its status is kept")
	}
}

func TestARefusedStatusDoesNotDelayOtherPods(t *testing.T) {
	r := start(t)
	var mu sync.Mutex
	refuse := true
	r.server.Fail(func(req apifake.Request) error {
		mu.Lock()
		defer mu.Unlock()
		if refuse && req.Name == "bad" {
			return apierrors.NewForbidden(corev1.Resource("pods"), "bad", fmt.Errorf("no"))
		}
		return nil
	})
	r.Set(r.pod("bad"), phase(corev1.PodRunning))
	for i := range 8 {
		name := fmt.Sprint("good", i)
		r.Set(r.pod(name), phase(corev1.PodRunning))
		r.awaitPhase(name, corev1.PodRunning)
	}
	mu.Lock()
	refuse = false
	mu.Unlock()
	r.awaitPhase("bad", corev1.PodRunning)
}

func TestAPodIsDeletedAfterItsLastStatus(t *testing.T) {
	r := start(t)
	pod := r.pod("a", deleted)
	r.Set(pod, phase(corev1.PodRunning))
	r.awaitPhase("a", corev1.PodRunning)
	r.Set(pod, phase(corev1.PodSucceeded))
	r.Finish(pod)
	r.await("it is gone", func() bool { return r.server.Pod("ns", "a") == nil })
	r.idle()
	var verbs []string
	for _, req := range r.server.Requests() {
		verbs = append(verbs, req.Verb)
	}
	if got := strings.Join(verbs, " "); !strings.HasSuffix(got, "patch delete") {
		t.Errorf("requests: %s", got)
	}
	if _, ok := r.Status(pod.UID); ok {
		t.Error("its status is kept")
	}
}

func TestAFinishedPodIsDeletedOnceItIsMarkedForDeletion(t *testing.T) {
	r := start(t)
	pod := r.pod("a")
	r.Set(pod, phase(corev1.PodSucceeded))
	r.Finish(pod)
	r.awaitPhase("a", corev1.PodSucceeded)
	r.idle()
	pod = r.server.Pod("ns", "a")
	deleted(pod)
	r.Observed(r.server.Put(pod).(*corev1.Pod))
	r.await("it is gone", func() bool { return r.server.Pod("ns", "a") == nil })
}

func TestADeletedPodWithoutATerminalPhaseBecomesFailed(t *testing.T) {
	r := start(t)
	pod := r.pod("a", deleted)
	r.Set(pod, phase(corev1.PodPending))
	r.Finish(pod)
	r.await("it is gone", func() bool { return r.server.Pod("ns", "a") == nil })
	for _, req := range r.server.Requests() {
		if req.Verb == "patch" && strings.Contains(string(req.Body), `"phase":"Failed"`) {
			return
		}
	}
	t.Error("it was not shown as failed")
}

func staticPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "s", UID: "hash", Annotations: map[string]string{source.SourceAnnotation: source.File},
	}}
}

// mirrors returns a change of a pod to one with the annotation of mirror pods.
func mirrors(static types.UID) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{source.MirrorAnnotation: string(static)} }
}

func TestTheStatusOfAStaticPodIsWrittenToItsMirror(t *testing.T) {
	r := start(t)
	static := staticPod()
	r.Set(static, phase(corev1.PodRunning))
	r.idle()
	if got := r.server.Requests(); len(got) != 0 {
		t.Fatalf("requests without a mirror: %v", got)
	}
	mirror := r.pod("s", mirrors("hash"))
	r.awaitPhase("s", corev1.PodRunning)

	// A new mirror gets the whole status again.
	r.idle()
	r.server.Remove(mirror)
	r.Gone(mirror)
	r.pod("s", mirrors("hash"))
	r.awaitPhase("s", corev1.PodRunning)
	r.Finish(static)
	r.idle()
	if _, ok := r.Status("hash"); !ok || r.server.Pod("ns", "s") == nil {
		t.Error("a finished static pod, or its mirror, is gone")
	}
}

// TestAPodWithTheUIDOfAnotherInItsAnnotationDoesNotGetItsStatus: any client that may create pods
// can set the annotation.
func TestAPodWithTheUIDOfAnotherInItsAnnotationDoesNotGetItsStatus(t *testing.T) {
	r := start(t)
	elsewhere := func(p *corev1.Pod) { p.Namespace = "evil" }
	early := r.pod("s", mirrors("hash"), elsewhere)
	static := staticPod()
	r.Set(static, phase(corev1.PodRunning))
	r.pod("s", mirrors("hash"))
	api := r.pod("a")
	r.Set(api, phase(corev1.PodRunning))
	r.pod("fake", mirrors("hash"))
	r.pod("another", mirrors(api.UID))
	r.pod("a", mirrors(api.UID), elsewhere)
	r.Gone(early)
	r.awaitPhase("s", corev1.PodRunning)
	r.awaitPhase("a", corev1.PodRunning)
	r.Set(static, phase(corev1.PodFailed))
	r.Set(api, phase(corev1.PodFailed))
	r.awaitPhase("s", corev1.PodFailed)
	r.awaitPhase("a", corev1.PodFailed)
	r.idle()
	for _, request := range r.server.Requests() {
		if request.Namespace != "ns" || request.Name != "s" && request.Name != "a" {
			t.Errorf("request: %v", request)
		}
	}
}

func TestAMirrorWithoutAStaticPodIsForgottenWhenItIsGone(t *testing.T) {
	r := start(t)
	r.Gone(r.pod("s", mirrors("hash")))
	if len(r.pods)+len(r.mirrors) != 0 {
		t.Error("it is kept for ever")
	}
}

func TestAStaticPodThatReturnsStartsWithANewStatus(t *testing.T) {
	r := start(t)
	static := staticPod()
	r.pod("s", mirrors("hash"))
	r.Set(static, phase(corev1.PodFailed))
	r.Finish(static)
	r.awaitPhase("s", corev1.PodFailed)
	r.idle()
	r.Forget(static.UID)
	r.Set(static, phase(corev1.PodRunning))
	r.awaitPhase("s", corev1.PodRunning)
	r.Set(static, phase(corev1.PodFailed))
	r.Set(static, phase(corev1.PodRunning))
	if s, _ := r.Status(static.UID); s.Phase != corev1.PodFailed {
		t.Errorf("it is %s after Failed", s.Phase)
	}
}

func TestOverwrittenStatusesAreRestoredAndOtherConditionsKept(t *testing.T) {
	r := start(t)
	pod := r.pod("a")
	r.Set(pod, corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}})
	r.awaitPhase("a", corev1.PodRunning)
	r.idle()
	changed := r.server.Pod("ns", "a")
	changed.Status.PodIP = "192.0.2.1"
	changed.Status.Conditions = append(changed.Status.Conditions, corev1.PodCondition{Type: "example.com/gate", Status: corev1.ConditionTrue})
	r.Observed(r.server.Put(changed).(*corev1.Pod))
	r.await("the address is right", func() bool { return r.server.Pod("ns", "a").Status.PodIP == "10.0.0.1" })
	r.idle()
	if got := r.server.Pod("ns", "a").Status.Conditions; len(got) != 2 {
		t.Errorf("conditions: %v", got)
	}
}

func TestOutdatedEventsDoNotUndoAWrite(t *testing.T) {
	r := start(t)
	pod := r.pod("a")
	r.Set(pod, phase(corev1.PodRunning))
	r.awaitPhase("a", corev1.PodRunning)
	r.idle()
	r.server.Requests()
	r.Observed(pod)
	r.idle()
	if got := r.server.Requests(); len(got) != 0 {
		t.Errorf("requests: %v", got)
	}
}

func TestWithoutAnAPIServerStatusesAreOnlyKept(t *testing.T) {
	m := New(Options{})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "x"}}
	m.Set(pod, phase(corev1.PodRunning))
	if s, ok := m.Status("x"); !ok || s.Phase != corev1.PodRunning {
		t.Errorf("%v %v", s, ok)
	}
	m.Finish(pod)
	m.Forget(types.UID("x"))
	if len(m.pods) != 0 {
		t.Error("it is kept for ever")
	}
}
