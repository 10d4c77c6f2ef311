package executor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/container"
	"svc.dev/svc/svclet/image"
	"svc.dev/svc/svclet/logs"
	store "svc.dev/svc/svclet/objects"
	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/probe"
	"svc.dev/svc/svclet/runtime"
	"svc.dev/svc/svclet/runtime/runtimetest"
	"svc.dev/svc/svclet/volume"
)

// fakes are the parts of an executor that are not the runtime, volumes, images and
// logs. They record what they are asked for.
type fakes struct {
	store.None
	mu           sync.Mutex
	registered   []types.UID
	unregistered []types.UID
	cgroups      map[types.UID]bool
	hooks        []probe.HookKind
	events       []pod.Event
	started      []string // the reasons of starts of containers
	rejected     []string // the reasons of rejections of pods
	mounted      int      // the number of images that containers mount
	// createCgroup and removeCgroup are errors. handlers are those of runtime classes.
	createCgroup, removeCgroup error
	handlers                   map[string]string
	// keepsMemory reports that Create keeps a limit of memory.
	keepsMemory bool
	// memory is the error of limits of memory, resizeCgroup that of a resize. resizes are those of
	// cgroups and the announcements of them, in order.
	memory, resizeCgroup error
	resizes              []string
	// configMap is every ConfigMap; nil means that there is none.
	configMap *corev1.ConfigMap
	// hook replaces hooks that succeed at once.
	hook func(ctx context.Context, kind probe.HookKind) error
}

func (f *fakes) record(what func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	what()
}

func (f *fakes) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	if f.configMap != nil {
		return f.configMap, nil
	}
	return f.None.ConfigMap(ctx, namespace, name)
}

func (f *fakes) Register(p *corev1.Pod) {
	f.record(func() { f.registered = append(f.registered, p.UID) })
}

func (f *fakes) Unregister(uid types.UID) {
	f.record(func() { f.unregistered = append(f.unregistered, uid) })
}

func (f *fakes) RuntimeHandler(_ context.Context, class string) (string, error) {
	if handler, found := f.handlers[class]; found {
		return handler, nil
	}
	return "", errors.New("no such runtime class")
}

func (f *fakes) Create(p *corev1.Pod) (bool, error) {
	f.record(func() { f.cgroups[p.UID] = true })
	return f.keepsMemory, f.createCgroup
}

func (f *fakes) MemorySuffices(*corev1.Pod) error { return f.memory }

func (f *fakes) Resize(_, before *corev1.Pod) error {
	f.record(func() {
		f.resizes = append(f.resizes, map[bool]string{true: "cgroup grows", false: "cgroup"}[before != nil])
	})
	return f.resizeCgroup
}

func (f *fakes) Parent(*corev1.Pod) (string, error) { return "/kubepods/p", nil }

func (f *fakes) Remove(_ context.Context, uid types.UID) error {
	f.record(func() { delete(f.cgroups, uid) })
	return f.removeCgroup
}

func (f *fakes) Hook(ctx context.Context, kind probe.HookKind, _ *corev1.Pod, _ *corev1.Container, _, _ string) error {
	f.record(func() { f.hooks = append(f.hooks, kind) })
	if f.hook != nil {
		return f.hook(ctx, kind)
	}
	return nil
}

func (f *fakes) Event(_ *corev1.Pod, e pod.Event) {
	f.record(func() { f.events = append(f.events, e) })
}
func (f *fakes) PodRejected(reason string) {
	f.record(func() { f.rejected = append(f.rejected, reason) })
}
func (f *fakes) SandboxRun(string, time.Duration, error) {}
func (f *fakes) ImagesMounted(images int, _ error)       { f.record(func() { f.mounted += images }) }
func (f *fakes) ContainerStarted(_, reason string) {
	f.record(func() { f.started = append(f.started, reason) })
}

// reasons returns the reasons of the recorded events.
func (f *fakes) reasons() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for _, e := range f.events {
		all = append(all, e.Reason)
	}
	return all
}

// fixture is an executor with a fake runtime, and volumes and logs in a directory.
type fixture struct {
	*testing.T
	*gomega.WithT
	*fakes
	*Executor
	dir     string
	runtime *runtimetest.Runtime
	clock   *testingclock.FakeClock
	node    *corev1.Node
	pod     *corev1.Pod
}

func newFixture(t *testing.T, change ...func(*corev1.Pod)) *fixture {
	t.Helper()
	// The path of a socket is short.
	sockets, err := os.MkdirTemp("", "svclet")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	r := &fixture{
		T: t, WithT: gomega.NewWithT(t), dir: t.TempDir(),
		fakes: &fakes{cgroups: map[types.UID]bool{}, handlers: map[string]string{"sandboxed": "gvisor"}},
		clock: testingclock.NewFakeClock(time.Unix(1_800_000_000, 0)),
		node:  &corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}}},
		pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
			Spec: corev1.PodSpec{
				DNSPolicy: corev1.DNSDefault, EnableServiceLinks: ptr.To(false), TerminationGracePeriodSeconds: ptr.To[int64](30),
				Containers: []corev1.Container{{Name: "app", Image: "app:1", ImagePullPolicy: corev1.PullIfNotPresent}},
			},
		},
	}
	for _, f := range change {
		f(r.pod)
	}
	r.runtime, err = runtimetest.Start(runtimetest.Options{Socket: filepath.Join(sockets, "s"), Images: []string{"app:1"}})
	r.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(r.runtime.Close)
	client, err := runtime.Connect(t.Context(), runtime.Options{RuntimeEndpoint: r.runtime.Endpoint(), RequestTimeout: time.Minute})
	r.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(func() { client.Close() })
	volumes, err := volume.New(volume.Options{
		RootDir: filepath.Join(r.dir, "root"), Objects: r.fakes, Clock: r.clock, Images: func(context.Context) error { return nil },
	})
	r.Expect(err).NotTo(gomega.HaveOccurred())
	podLogs, err := logs.New(logs.Options{
		Runtime: client, Dir: filepath.Join(r.dir, "logs"), LinkDir: filepath.Join(r.dir, "links"), MaxSize: -1, MaxFiles: 2, Clock: r.clock,
	})
	r.Expect(err).NotTo(gomega.HaveOccurred())
	r.Executor = New(Options{
		Runtime: client, Images: image.New(image.Options{Runtime: client, Recorder: r.fakes, Clock: r.clock}), Volumes: volumes, Logs: podLogs,
		Objects: r.fakes, Cgroups: r.fakes, Hooks: r.fakes, Events: r.fakes, Metrics: r.fakes, Clock: r.clock,
		Node: func() *corev1.Node { return r.node }, Containers: container.Options{PodLogs: filepath.Join(r.dir, "logs")},
	})
	return r
}

// perform carries out an operation for the pod, as the runtime holds it now.
func (r *fixture) perform(ctx context.Context, op pod.Operation) pod.Result {
	r.Helper()
	return r.Perform(ctx, r.pod, r.observed(), op, func(time.Duration) {})
}

// succeed carries out an operation that has to succeed.
func (r *fixture) succeed(op pod.Operation) {
	r.Helper()
	r.Expect(r.perform(r.Context(), op)).To(gomega.Equal(pod.Result{}))
}

// observed returns what the runtime holds of the pod.
func (r *fixture) observed() pod.Observed {
	r.Helper()
	observed, err := r.Observe(context.Background(), r.pod.UID)
	r.Expect(err).NotTo(gomega.HaveOccurred())
	return observed
}

// sandbox sets the pod up, creates its sandbox and returns the sandbox's ID.
func (r *fixture) sandbox() string {
	r.Helper()
	r.succeed(pod.Operation{Kind: pod.SetUp})
	r.succeed(pod.Operation{Kind: pod.CreateSandbox})
	return r.observed().Sandboxes[0].ID
}

// startOf returns the start of a container.
func (r *fixture) startOf(name string) pod.Operation {
	r.Helper()
	return pod.Operation{Kind: pod.StartContainer, Name: name, SandboxID: r.sandbox()}
}

// running starts the container "app" and returns its ID.
func (r *fixture) running() string {
	r.Helper()
	r.succeed(r.startOf("app"))
	i := slices.IndexFunc(r.observed().Containers, func(c pod.Container) bool { return c.Name == "app" && c.State == pod.Running })
	r.Expect(i).To(gomega.BeNumerically(">=", 0))
	return r.observed().Containers[i].ID
}

// withHooks adds a postStart and a preStop hook to the pod's container.
func withHooks(p *corev1.Pod) {
	command := &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"run"}}}
	p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: command, PreStop: command}
}
