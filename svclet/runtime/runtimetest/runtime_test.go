package runtimetest_test

import (
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"svc.dev/svc/internal/footprint/leaks"
	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/runtime"
	"svc.dev/svc/svclet/runtime/runtimetest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const image = "localhost/app:1"

// start starts a fake runtime and a client of it.
func start(t *testing.T, options runtimetest.Options) (*runtimetest.Runtime, *runtime.Client) {
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
	options.Socket = filepath.Join(dir, "s")
	options.Images = []string{image}
	r, err := runtimetest.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	client, err := runtime.Connect(t.Context(), runtime.Options{RuntimeEndpoint: r.Endpoint()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return r, client
}

// run runs a container in its own pod, and returns its ID.
func run(t *testing.T, client *runtime.Client, uid string) string {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "default", Name: uid}}
	c := &corev1.Container{Name: "app"}
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: uid}, Labels: runtime.SandboxLabels(p),
	}
	sandbox, err := client.RunSandbox(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	id, err := client.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: c.Name}, Image: &runtimeapi.ImageSpec{Image: image}, Labels: runtime.ContainerLabels(p, c),
	}, config)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return id
}

func state(t *testing.T, client *runtime.Client, uid string) pod.Container {
	t.Helper()
	observed, err := client.Pod(t.Context(), types.UID(uid))
	if err != nil || len(observed.Containers) != 1 {
		t.Fatalf("observed %+v %v", observed, err)
	}
	return observed.Containers[0]
}

func TestFakePodsUseNoGoroutines(t *testing.T) {
	r, client := start(t, runtimetest.Options{})
	run(t, client, "first")
	before := goruntime.NumGoroutine()
	for i := range 200 {
		run(t, client, fmt.Sprintf("pod-%d", i))
	}
	for end := time.Now().Add(time.Minute); goruntime.NumGoroutine() > before+5; goruntime.Gosched() { // those of requests end
		if time.Now().After(end) {
			t.Fatalf("200 pods take %d goroutines", goruntime.NumGoroutine()-before)
		}
	}
	if got := len(r.Pods()); got != 201 {
		t.Errorf("%d pods", got)
	}
}

func TestFakeContainersExitByThemselves(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	r, client := start(t, runtimetest.Options{Clock: clock, Behave: func(*runtimeapi.ContainerConfig) runtimetest.Behaviour {
		return runtimetest.Behaviour{EndsAfter: time.Minute, End: runtimetest.End{Code: 5}}
	}})
	id := run(t, client, "a")
	if got := state(t, client, "a"); got.ID != id || got.ID != r.Container("a", "app") || got.State != pod.Running {
		t.Errorf("%+v", got)
	}
	clock.Step(time.Minute)
	for state(t, client, "a").State == pod.Running {
		goruntime.Gosched()
	}
	if got := state(t, client, "a"); got.State != pod.Exited || got.ExitCode != 5 || got.FinishedAt.Sub(got.StartedAt) != time.Minute {
		t.Errorf("%+v", got)
	}
}

func TestFakeContainersAreKilledAfterTheirGracePeriod(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	_, client := start(t, runtimetest.Options{Clock: clock, Behave: func(*runtimeapi.ContainerConfig) runtimetest.Behaviour {
		return runtimetest.Behaviour{StopTakes: time.Hour}
	}})
	id := run(t, client, "a")
	stopped := make(chan error)
	go func() { stopped <- client.StopContainer(t.Context(), id, 10*time.Second) }()
	for !clock.HasWaiters() {
		goruntime.Gosched()
	}
	clock.Step(10 * time.Second)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if got := state(t, client, "a"); got.ExitCode != 137 {
		t.Errorf("%+v", got)
	}
}

func TestImagesArePulledAndRemoved(t *testing.T) {
	r, client := start(t, runtimetest.Options{})
	spec := &runtimeapi.ImageSpec{Image: "registry.test/x:1"}
	r.FailPulls(spec.Image, fmt.Errorf("no such image"))
	if _, err := client.PullImage(t.Context(), spec, nil, nil); err == nil || err.Error() != "no such image" {
		t.Errorf("PullImage: %v", err)
	}
	r.FailPulls(spec.Image, nil)
	ref, err := client.PullImage(t.Context(), spec, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := client.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: ref}); err != nil || got.GetRepoTags()[0] != spec.Image {
		t.Errorf("ImageStatus: %v %v", got, err)
	}
	if err := client.RemoveImage(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if got, err := client.ImageStatus(t.Context(), spec); err != nil || got != nil {
		t.Errorf("ImageStatus: %v %v", got, err)
	}
	if images, err := client.ListImages(t.Context(), nil); err != nil || len(images) != 1 {
		t.Errorf("ListImages: %v %v", images, err)
	}
}

func TestStatsAreThoseOfWhatRuns(t *testing.T) {
	r, client := start(t, runtimetest.Options{})
	run(t, client, "a")
	r.End(run(t, client, "b"), runtimetest.End{})
	containers, err := client.ListContainerStats(t.Context(), nil)
	if err != nil || len(containers) != 1 {
		t.Errorf("ListContainerStats: %v %v", containers, err)
	}
	sandboxes, err := client.ListSandboxStats(t.Context(), nil)
	if err != nil || len(sandboxes) != 2 {
		t.Errorf("ListSandboxStats: %v %v", sandboxes, err)
	}
	if got, err := client.ContainerStats(t.Context(), r.Container("a", "app")); err != nil || got.GetMemory().GetWorkingSetBytes().GetValue() == 0 {
		t.Errorf("ContainerStats: %v %v", got, err)
	}
	if got, err := client.ImageFsInfo(t.Context()); err != nil || len(got.GetImageFilesystems()) != 1 {
		t.Errorf("ImageFsInfo: %v %v", got, err)
	}
}
