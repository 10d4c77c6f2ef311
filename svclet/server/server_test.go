package server_test

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/internal/footprint/leaks"
	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/server"
)

func TestMain(m *testing.M) {
	leaks.Main(
		m,
		// Ends a second after the peer closes the connection, or never if a stream was
		// being opened.
		goleak.IgnoreAnyFunction("github.com/moby/spdystream.(*Connection).shutdown"),
		goleak.IgnoreAnyFunction("github.com/moby/spdystream.(*Connection).shutdown.func1"),
		// Ends 30 s after a connection was closed while a stream was being opened.
		goleak.IgnoreAnyFunction("github.com/moby/spdystream.(*Stream).WaitTimeout"),
		// A stream of the fake runtime that was reset before it was accepted.
		goleak.IgnoreAnyFunction("github.com/moby/spdystream.(*Stream).waitWriteReply"),
		// The client's goroutine, which ends at its next ping.
		goleak.IgnoreAnyFunction("k8s.io/client-go/tools/remotecommand.(*heartbeat).start"),
	)
}

// node is a server with fakes of everything behind it.
type node struct {
	*server.Server
	*server.Listeners
	pods    *fakePods
	runtime *fakeRuntime
	loop    *fakeLoop
	client  *http.Client
}

// start serves on free ports until the end of the test.
func start(t *testing.T, change func(*server.Options, *server.Parts)) *node {
	t.Helper()
	n := &node{pods: &fakePods{}, runtime: newFakeRuntime(t), loop: &fakeLoop{}}
	o := server.Defaults()
	o.NodeName, o.Address, o.Port, o.ReadOnlyPort, o.HealthzPort = "node", "127.0.0.1", 0, 0, 0
	o.CertDirectory, o.LogDirectory = sharedCertificates(t), t.TempDir()
	parts := server.Parts{Pods: n.pods, Runtime: n.runtime, SyncLoop: n.loop}
	if change != nil {
		change(&o, &parts)
	}
	s, err := server.New(o, parts)
	if err != nil {
		t.Fatal(err)
	}
	l, err := server.Listen(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- s.Serve(ctx, l) }()
	n.Server, n.Listeners = s, l
	transport := &http.Transport{TLSClientConfig: insecure()}
	n.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return n
}

// sharedCertificates is one directory for all tests that need any certificate:
// creating a key takes time.
var sharedCertificates = func() func(t *testing.T) string {
	var once sync.Once
	var cert, key []byte
	return func(t *testing.T) string {
		dir := t.TempDir()
		once.Do(func() { cert, key = selfSigned(t) })
		write(t, dir+"/svclet.crt", cert)
		write(t, dir+"/svclet.key", key)
		return dir
	}
}()

func (n *node) url(path string, query url.Values) *url.URL {
	return &url.URL{Scheme: "https", Host: "127.0.0.1:" + strconv.Itoa(int(n.Port())), Path: path, RawQuery: query.Encode()}
}

// get returns the status code and the body of an answer.
func (n *node) get(t *testing.T, path string, query url.Values) (int, string) {
	t.Helper()
	return fetch(t, n.client, http.MethodGet, n.url(path, query).String(), nil)
}

func fetch(t *testing.T, c *http.Client, method, address string, header http.Header) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		r.Header = header
	}
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

func insecure() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }

// plainClient uses HTTP/1.1 without keep-alive.
func plainClient() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: insecure(), DisableKeepAlives: true}}
}

// serve serves one request with a handler, without a listener.
func serve(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

type fakePods struct {
	mu   sync.Mutex
	pods []*corev1.Pod
}

func (f *fakePods) add(p *corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods = append(f.pods, p)
}

func (f *fakePods) List() []*corev1.Pod {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pods
}

func (f *fakePods) Get(namespace, name string) (*corev1.Pod, bool) {
	for _, p := range f.List() {
		if p.Namespace == namespace && p.Name == name {
			return p, true
		}
	}
	return nil, false
}

func (f *fakePods) Translate(uid types.UID) types.UID {
	if uid == "mirror" {
		return "uid"
	}
	return uid
}

func (f *fakePods) Running(context.Context) ([]*corev1.Pod, error) {
	return []*corev1.Pod{server.RunningPod("uid", "default", "web", pod.Observed{Containers: []pod.Container{
		{Name: "main", Image: "busybox", State: pod.Running}, {Name: "old", State: pod.Exited},
	}})}, nil
}

type fakeLoop struct{ at time.Time }

func (f *fakeLoop) Progress() time.Time { return f.at }

// web returns a pod whose container main runs, and whose container done has
// exited.
func web() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "uid"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "main", Image: "busybox"}, {Name: "terminal", Image: "busybox", TTY: true}, {Name: "done", Image: "busybox"},
		}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "main", ContainerID: "fake://main-id", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}},
	}
}

func webObserved() pod.Observed {
	return pod.Observed{
		Sandboxes: []pod.Sandbox{{ID: "sandbox-id", Ready: true}},
		Containers: []pod.Container{
			{ID: "main-id", Name: "main", State: pod.Running}, {ID: "terminal-id", Name: "terminal", State: pod.Running},
			{ID: "done-id", Name: "done", State: pod.Exited},
		},
	}
}

// ContainerStatus returns the status of the running container main, with the path of its
// log.
func (f *fakeRuntime) ContainerStatus(_ context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s, ok := f.statuses[id]; ok {
		return s, nil
	}
	return nil, errNoContainer
}
