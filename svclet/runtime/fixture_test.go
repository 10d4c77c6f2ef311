package runtime_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/internal/footprint/leaks"
	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/runtime"
	"svc.dev/svc/svclet/runtime/runtimetest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const image = "localhost/app:1"

const (
	// never is longer than any test: what is due after it does not happen.
	never = time.Hour
	// waitTimeout is the timeout of a test's wait.
	waitTimeout = time.Minute
)

// fixture is a fake runtime and a client of it.
type fixture struct {
	*runtimetest.Runtime
	t      *testing.T
	client *runtime.Client
}

// socket returns a path short enough for a Unix socket.
func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cri")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "s")
}

func start(t *testing.T, served runtimetest.Options, options runtime.Options) *fixture {
	t.Helper()
	served.Socket = socket(t)
	served.Images = append(served.Images, image)
	r, err := runtimetest.Start(served)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	options.RuntimeEndpoint = r.Endpoint()
	client, err := runtime.Connect(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return &fixture{Runtime: r, t: t, client: client}
}

func podOf(uid string) *corev1.Pod {
	grace := int64(7)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "default", Name: "pod-" + uid, Labels: map[string]string{"app": uid}},
		Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: &grace},
	}
}

func sandboxConfig(p *corev1.Pod, attempt uint32) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: string(p.UID), Attempt: attempt},
		Labels:   runtime.SandboxLabels(p),
		Linux:    &runtimeapi.LinuxPodSandboxConfig{},
	}
}

// sandbox creates a sandbox of a pod.
func (w *fixture) sandbox(uid string, attempt uint32) string {
	w.t.Helper()
	id, err := w.client.RunSandbox(w.t.Context(), sandboxConfig(podOf(uid), attempt), "")
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// create creates a container without starting it.
func (w *fixture) create(uid, name string, attempt uint32, edits ...func(*runtimeapi.ContainerConfig)) string {
	w.t.Helper()
	p, container := podOf(uid), &corev1.Container{Name: name, TerminationMessagePath: "/dev/termination-log"}
	annotations, err := runtime.ContainerAnnotations(p, container, attempt, 0xabc, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	config := &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt},
		Image:       &runtimeapi.ImageSpec{Image: image},
		Labels:      runtime.ContainerLabels(p, container),
		Annotations: annotations,
	}
	for _, edit := range edits {
		edit(config)
	}
	sandbox := w.Sandbox(types.UID(uid))
	id, err := w.client.CreateContainer(w.t.Context(), sandbox, config, sandboxConfig(p, 0))
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// run creates and starts a container.
func (w *fixture) run(uid, name string, attempt uint32, edits ...func(*runtimeapi.ContainerConfig)) string {
	w.t.Helper()
	id := w.create(uid, name, attempt, edits...)
	if err := w.client.StartContainer(w.t.Context(), id); err != nil {
		w.t.Fatal(err)
	}
	return id
}

// inspect inspects a pod.
func (w *fixture) inspect(uid string) pod.Observed {
	w.t.Helper()
	observed, err := w.client.Pod(w.t.Context(), types.UID(uid))
	if err != nil {
		w.t.Fatal(err)
	}
	return observed
}

// reports are what a watch has reported.
type reports struct {
	t       *testing.T
	mu      sync.Mutex
	changed chan struct{}
	// pods are the newest observations.
	pods map[types.UID]runtime.Pod
}

// watch watches until the end of the test.
func (w *fixture) watch() *reports {
	w.t.Helper()
	observed := &reports{t: w.t, changed: make(chan struct{}, 1), pods: map[types.UID]runtime.Pod{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.client.Watch(ctx, observed.add) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			w.t.Errorf("Watch ended with %v", err)
		}
	})
	return observed
}

func (h *reports) add(p runtime.Pod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if last, ok := h.pods[p.UID]; ok && last.Observed.Sequence >= p.Observed.Sequence {
		h.t.Errorf("pod %s went back from observation %d to %d", p.UID, last.Observed.Sequence, p.Observed.Sequence)
	}
	h.pods[p.UID] = p
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// until waits until the last reported observation of a pod meets a condition.
func (h *reports) until(uid string, is func(pod.Observed) bool) runtime.Pod {
	h.t.Helper()
	timeout := time.After(waitTimeout)
	for {
		h.mu.Lock()
		p, ok := h.pods[types.UID(uid)]
		h.mu.Unlock()
		if ok && is(p.Observed) {
			return p
		}
		select {
		case <-h.changed:
		case <-timeout:
			h.t.Fatalf("pod %s is reports as %+v", uid, p)
		}
	}
}

// eventually polls a condition without an event.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	timeout := time.After(waitTimeout)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// in reports whether a pod's newest container with that name is in that state.
func in(name string, state pod.State) func(pod.Observed) bool {
	return func(observed pod.Observed) bool {
		for _, container := range observed.Containers {
			if container.Name == name {
				return container.State == state
			}
		}
		return false
	}
}

// nothing reports whether nothing of the pod is left.
func nothing(observed pod.Observed) bool {
	return len(observed.Sandboxes)+len(observed.Containers) == 0
}
