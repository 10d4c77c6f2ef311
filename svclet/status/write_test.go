package status

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"svc.dev/svc/apis/podspec"
)

// slowServer is an API server that takes its time, by the clock of synctest.
type slowServer struct {
	*Manager
	t *testing.T

	mu sync.Mutex
	// takes is how long the requests of a pod take, and fails is how they end.
	takes func(pod string) time.Duration
	fails func(pod string) *apierrors.StatusError
	// phases are those of the pods, "deleted" of one that was deleted.
	phases             map[string]corev1.PodPhase
	requests           map[string]int
	inFlight, together int
}

const (
	never                 = 24 * time.Hour
	gone  corev1.PodPhase = "deleted"
)

// newSlowServer returns a server at which the requests of pods named slow get no answer.
func newSlowServer(t *testing.T) *slowServer {
	s := &slowServer{t: t, phases: map[string]corev1.PodPhase{}, requests: map[string]int{}}
	s.fails = func(string) *apierrors.StatusError { return nil }
	s.takes = func(pod string) time.Duration {
		if strings.HasPrefix(pod, "slow") {
			return never
		}
		return time.Millisecond
	}
	core, err := rest.RESTClientForConfigAndClient(&rest.Config{
		Host: "http://server", APIPath: "/api", QPS: -1,
		ContentConfig: rest.ContentConfig{
			GroupVersion: &corev1.SchemeGroupVersion, NegotiatedSerializer: clientgoscheme.Codecs.WithoutConversion(), ContentType: runtime.ContentTypeJSON,
		},
	}, &http.Client{Transport: s})
	if err != nil {
		t.Fatal(err)
	}
	s.Manager = New(Options{Core: core})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return s
}

// RoundTrip implements http.RoundTripper.
func (s *slowServer) RoundTrip(r *http.Request) (*http.Response, error) {
	name := path.Base(strings.TrimSuffix(r.URL.Path, "/status"))
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.requests[name]++
	s.inFlight++
	s.together = max(s.together, s.inFlight)
	takes := s.takes(name)
	s.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-r.Context().Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight--
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if err := s.fails(name); err != nil {
		return response(int(err.ErrStatus.Code), err.ErrStatus), nil
	}
	if r.Method == http.MethodDelete {
		s.phases[name] = gone
		return response(http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}), nil
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(body, pod); err != nil {
		return nil, err
	}
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	pod.Namespace, pod.Name, pod.ResourceVersion = "ns", name, strconv.Itoa(s.requests[name]+1)
	if podspec.IsTerminal(pod.Status.Phase) {
		pod.DeletionTimestamp = &earlier
	}
	s.phases[name] = pod.Status.Phase
	return response(http.StatusOK, pod), nil
}

func response(code int, o any) *http.Response {
	body, _ := json.Marshal(o)
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(body)))}
}

// set sets the phase of a pod that the API server has.
func (s *slowServer) set(name string, p corev1.PodPhase) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: "1"}}
	s.Observed(pod)
	s.Set(pod, phase(p))
	return pod
}

// answer sets how long the requests of all pods take from now on.
func (s *slowServer) answer(after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takes = func(string) time.Duration { return after }
}

// count returns the number of requests of pods until now, and of those together.
func (s *slowServer) count() (all, together int) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.requests {
		all += n
	}
	return all, s.together
}

// expect waits until a pod has a phase in the API server, and fails if that takes too long.
func (s *slowServer) expect(name string, p corev1.PodPhase, within time.Duration) {
	s.t.Helper()
	is := func() corev1.PodPhase {
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.phases[name]
	}
	for end := time.Now().Add(within); is() != p; time.Sleep(10 * time.Millisecond) { // the clock of synctest
		if time.Now().After(end) {
			s.t.Fatalf("after %v %s is %q, want %q", within, name, is(), p)
		}
	}
}

func TestAPodWhoseRequestsGetNoAnswerDoesNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowServer(t)
		s.set("slow", corev1.PodRunning)
		for i := range 200 {
			time.Sleep(6 * time.Second) // the clock of synctest
			if s.Written("slow") {
				t.Fatal("the API server counts as not available")
			}
			name := fmt.Sprint("good-", i)
			s.set(name, corev1.PodRunning)
			s.expect(name, corev1.PodRunning, time.Second)
			s.Finish(s.set(name, corev1.PodSucceeded))
			s.expect(name, gone, time.Second)
		}
		if n, _ := s.count(); n < 600+8 || n > 600+20 {
			t.Errorf("%d requests in 20 minutes, 600 of them for other pods", n)
		}
		s.answer(0)
		s.expect("slow", corev1.PodRunning, requestTimeout+maxRetryPause)
	})
}

func TestThePodsOfANodeWithoutOtherChangesAreNotDelayedByOneWithoutAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowServer(t)
		s.set("slow", corev1.PodRunning)
		for i := range 5 {
			time.Sleep(time.Hour + time.Duration(i)*7*time.Second) // the clock of synctest
			s.set("good", corev1.PodRunning)
			s.expect("good", corev1.PodRunning, time.Second)
		}
	})
}

func TestManyPodsWhoseRequestsGetNoAnswerLeaveRequestsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowServer(t)
		for i := range 20 {
			s.set(fmt.Sprint("slow-", i), corev1.PodRunning)
		}
		s.set("good", corev1.PodRunning)
		s.expect("good", corev1.PodRunning, 20*(slowRequest+maxOutagePause))
		for i := range 100 {
			name := fmt.Sprint("good-", i)
			s.set(name, corev1.PodRunning)
			s.expect(name, corev1.PodRunning, time.Second)
			time.Sleep(7 * time.Second) // the clock of synctest
		}
		if _, together := s.count(); together > 6*defaultInFlight {
			t.Errorf("%d requests at once", together)
		}
	})
}

func TestARequestMayTakeAsLongAsTheAPIServerAllows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowServer(t)
		s.answer(59 * time.Second)
		s.set("slow", corev1.PodRunning)
		s.expect("slow", corev1.PodRunning, time.Minute)
		s.Finish(s.set("slow", corev1.PodSucceeded))
		s.expect("slow", gone, 2*time.Minute)
		if n, _ := s.count(); n != 3 {
			t.Errorf("%d requests, want 3", n)
		}
		s.Manager.mu.Lock()
		defer s.Manager.mu.Unlock()
		if len(s.pods) != 0 || s.busy != 0 || s.slow != 0 {
			t.Errorf("left: %d pods, %d and %d requests", len(s.pods), s.busy, s.slow)
		}
	})
}

// TestAPodForWhichTheAPIServerIsNotAvailableDoesNotDelayOthers: an admission webhook can answer
// so.
func TestAPodForWhichTheAPIServerIsNotAvailableDoesNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowServer(t)
		s.fails = func(pod string) *apierrors.StatusError {
			if pod == "bad" {
				return apierrors.NewServiceUnavailable("no")
			}
			return nil
		}
		s.set("bad", corev1.PodRunning)
		for i := range 20 {
			time.Sleep(6 * time.Second) // the clock of synctest
			s.set(fmt.Sprint("good-", i), corev1.PodRunning)
			s.expect(fmt.Sprint("good-", i), corev1.PodRunning, 2*maxOutagePause+time.Second)
		}
	})
}

func TestAnAPIServerThatDoesNotAnswerGetsFewRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowServer(t)
		s.answer(never)
		for i := range 30 {
			s.set(fmt.Sprint("p", i), corev1.PodRunning)
		}
		time.Sleep(10 * time.Minute) // the clock of synctest
		if all, together := s.count(); all > 50 || together > 10 {
			t.Errorf("%d requests in 10 minutes, %d at once", all, together)
		}
		s.answer(time.Millisecond)
		for i := range 30 {
			s.expect(fmt.Sprint("p", i), corev1.PodRunning, requestTimeout+maxRetryPause)
		}
	})
}
