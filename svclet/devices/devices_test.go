package devices

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"svc.dev/svc/svclet/topology"
)

const gpu = "example.com/gpu"

// fakePlugin is a device plugin whose devices the test sets.
type fakePlugin struct {
	pluginapi.UnimplementedDevicePluginServer
	server *grpc.Server
	list   chan []*pluginapi.Device

	mu     sync.Mutex
	called []string
	prefer []string
	must   []string // of the last request to prefer some
	empty  bool     // whether responses are
	fail   error
}

func (p *fakePlugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

func (p *fakePlugin) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case devices := <-p.list:
			if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: devices}); err != nil {
				return err
			}
		}
	}
}

func (p *fakePlugin) call(name string, ids []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.called = append(p.called, name+" "+strings.Join(ids, ","))
	return p.fail
}

func (p *fakePlugin) calls() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.called)
}

func (p *fakePlugin) Allocate(_ context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	ids := r.GetContainerRequests()[0].GetDevicesIds()
	if p.empty {
		return &pluginapi.AllocateResponse{ContainerResponses: []*pluginapi.ContainerAllocateResponse{{}}}, p.call("allocate", ids)
	}
	return &pluginapi.AllocateResponse{ContainerResponses: []*pluginapi.ContainerAllocateResponse{{
		Envs:        map[string]string{"GPUS": strings.Join(ids, ",")},
		Mounts:      []*pluginapi.Mount{{ContainerPath: "/lib/gpu", HostPath: "/opt/gpu", ReadOnly: true}},
		Devices:     []*pluginapi.DeviceSpec{{ContainerPath: "/dev/gpu", HostPath: "/dev/gpu0", Permissions: "rw"}},
		Annotations: map[string]string{"gpu": "yes"},
		CdiDevices:  []*pluginapi.CDIDevice{{Name: "example.com/gpu=0"}},
	}}}, p.call("allocate", ids)
}

func (p *fakePlugin) PreStartContainer(_ context.Context, r *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	return &pluginapi.PreStartContainerResponse{}, p.call("prestart", r.GetDevicesIds())
}

func (p *fakePlugin) GetPreferredAllocation(_ context.Context, r *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	request := r.GetContainerRequests()[0]
	p.mu.Lock()
	p.must = request.GetMustIncludeDeviceIDs()
	p.mu.Unlock()
	return &pluginapi.PreferredAllocationResponse{ContainerResponses: []*pluginapi.ContainerPreferredAllocationResponse{{DeviceIDs: p.prefer}}},
		p.call("prefer", request.GetAvailableDeviceIDs())
}

// fixture is a manager that runs.
type fixture struct {
	*Manager
	*gomega.WithT
	t     *testing.T
	dir   string
	clock *testclock.FakeClock
	// metrics are the calls of Registered and Allocated.
	metrics chan string
	stop    func()
}

func newFixture(t *testing.T, dir string) *fixture { return newBootedFixture(t, dir, "boot") }

func newBootedFixture(t *testing.T, dir, boot string) *fixture {
	f := &fixture{WithT: gomega.NewWithT(t), t: t, dir: dir, clock: testclock.NewFakeClock(time.Unix(0, 0)), metrics: make(chan string, 100)}
	f.SetDefaultEventuallyTimeout(time.Minute)
	var err error
	f.Manager, err = New(Options{Dir: dir, Nodes: []int{0, 1}, Boot: boot, Changed: func() {}, Clock: f.clock,
		Registered: func(resource string) { f.metrics <- "registered " + resource },
		Allocated: func(resource string, took time.Duration) {
			f.metrics <- "allocated " + resource + " in " + took.String()
		},
	})
	f.Expect(err).NotTo(gomega.HaveOccurred())
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	f.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(f.stop)
	f.Eventually(filepath.Join(dir, Socket)).Should(gomega.BeAnExistingFile())
	return f
}

// plugin starts a plugin and registers it.
func (f *fixture) plugin(options *pluginapi.DevicePluginOptions, devices ...*pluginapi.Device) *fakePlugin {
	f.t.Helper()
	p := f.serve("gpu.sock", devices...)
	f.Expect(f.register(&pluginapi.RegisterRequest{Version: pluginapi.Version, Endpoint: "gpu.sock", ResourceName: gpu, Options: options})).To(gomega.Succeed())
	return p
}

// serve starts a plugin at a socket in the directory.
func (f *fixture) serve(socket string, devices ...*pluginapi.Device) *fakePlugin {
	f.t.Helper()
	p := &fakePlugin{server: grpc.NewServer(), list: make(chan []*pluginapi.Device, 10)}
	pluginapi.RegisterDevicePluginServer(p.server, p)
	path := filepath.Join(f.dir, socket)
	f.Expect(os.RemoveAll(path)).To(gomega.Succeed())
	listener, err := net.Listen("unix", path)
	f.Expect(err).NotTo(gomega.HaveOccurred())
	var serving sync.WaitGroup
	serving.Go(func() { _ = p.server.Serve(listener) })
	f.t.Cleanup(func() { p.server.Stop(); serving.Wait() })
	p.list <- devices
	return p
}

func (f *fixture) register(request *pluginapi.RegisterRequest) error {
	conn, err := grpc.NewClient("unix://"+filepath.Join(f.dir, Socket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	f.Expect(err).NotTo(gomega.HaveOccurred())
	defer conn.Close()
	_, err = pluginapi.NewRegistrationClient(conn).Register(f.t.Context(), request, grpc.WaitForReady(true))
	return err
}

// counts returns how many devices there are, and how many are healthy, as "2/1"; "" if
// the resource has been removed.
func (f *fixture) counts() string {
	capacity, allocatable, _ := f.Resources()
	all, known := capacity[gpu]
	if !known {
		return ""
	}
	healthy := allocatable[gpu]
	return all.String() + "/" + healthy.String()
}

func on(node int64, id string) *pluginapi.Device {
	return &pluginapi.Device{ID: id, Health: pluginapi.Healthy, Topology: &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: node}}}}
}

func needing(uid string, count string) (*corev1.Pod, *corev1.Container) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{gpu: resource.MustParse(count)}},
	}}}}
	return p, &p.Spec.Containers[0]
}

func TestAContainerWithDevicesOfAClaimGetsNoneOfThePlugin(t *testing.T) {
	f := newFixture(t, t.TempDir())
	f.plugin(&pluginapi.DevicePluginOptions{}, on(0, "a"))
	f.Eventually(f.counts).Should(gomega.Equal("1/1"))
	pod, c := needing("1", "2")
	f.Expect(f.Allocate(pod, c, topology.NewMask(0))).NotTo(gomega.Succeed())
	pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{RequestMappings: []corev1.ContainerExtendedResourceRequest{{ContainerName: "c", ResourceName: gpu}}}
	f.Expect(f.Hints(pod, c)).To(gomega.BeEmpty())
	f.Expect(f.PodHints(pod)).To(gomega.BeEmpty())
	f.Expect(f.Allocate(pod, c, topology.NewMask(0))).To(gomega.Succeed())
	f.Expect(f.Pods()).To(gomega.BeEmpty())
}

func TestAContainerGetsDevicesAndWhatItNeedsToUseThem(t *testing.T) {
	f := newFixture(t, t.TempDir())
	p := f.plugin(&pluginapi.DevicePluginOptions{PreStartRequired: true}, on(0, "a"), on(1, "b"), on(1, "c"))
	f.Eventually(f.counts).Should(gomega.Equal("3/3"))
	pod, c := needing("1", "2")
	f.Expect(f.Hints(pod, c)[gpu]).To(gomega.Equal([]topology.Hint{{Nodes: 2, Preferred: true}, {Nodes: 3}}))
	f.Expect(f.Allocate(pod, c, topology.NewMask(1))).To(gomega.Succeed())
	f.Expect(p.calls()).To(gomega.BeEmpty(), "admission calls no plugin")

	got, err := f.Start(t.Context(), "1", "c")
	f.Expect(err).NotTo(gomega.HaveOccurred())
	f.Expect(got.Envs).To(gomega.HaveLen(1))
	f.Expect(string(got.Envs[0].Value)).To(gomega.Equal("b,c"))
	f.Expect(got.Mounts[0].HostPath + " " + got.Devices[0].HostPath + " " + got.CDIDevices[0].Name + " " + got.Annotations["gpu"]).To(gomega.Equal("/opt/gpu /dev/gpu0 example.com/gpu=0 yes"))
	_, err = f.Start(t.Context(), "1", "c")
	f.Expect(err).NotTo(gomega.HaveOccurred())
	f.Expect(p.calls()).To(gomega.Equal([]string{"allocate b,c", "prestart b,c", "prestart b,c"}), "allocated once, prepared before each start")
	f.Expect(f.metrics).To(gomega.Receive(gomega.Equal("registered " + gpu)))
	f.Expect(f.metrics).To(gomega.Receive(gomega.Equal("allocated " + gpu + " in 0s")))
	f.Expect(f.metrics).To(gomega.BeEmpty())

	second, c2 := needing("2", "2")
	f.Expect(f.Allocate(second, c2, 0)).To(gomega.MatchError("requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1"))
	f.Release("1")
	f.Expect(f.Allocate(second, c2, 0)).To(gomega.Succeed())
	f.Expect(f.Of("2", "c")).To(gomega.Equal([]Device{{gpu, []string{"a"}, []int{0}}, {gpu, []string{"b"}, []int{1}}}))
}

func TestThePluginMayPreferOthersOfTheFreeDevices(t *testing.T) {
	f := newFixture(t, t.TempDir())
	p := f.plugin(&pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true}, on(0, "a"), on(0, "b"), on(0, "c"), on(1, "d"))
	f.Eventually(f.counts).Should(gomega.Equal("4/4"))
	pod, c := needing("1", "1")
	f.Expect(f.Allocate(pod, c, topology.NewMask(0))).To(gomega.Succeed())
	p.prefer = []string{"c"}
	_, err := f.Start(t.Context(), "1", "c")
	f.Expect(err).NotTo(gomega.HaveOccurred())
	f.Expect(p.calls()).To(gomega.Equal([]string{"prefer a,b,c", "allocate c"}))
	pod, c = needing("2", "1")
	f.Expect(f.Allocate(pod, c, topology.NewMask(0))).To(gomega.Succeed())
	if _, err = f.Start(t.Context(), "2", "c"); err != nil {
		t.Fatal(err)
	}
	f.Expect(f.Of("2", "c")).To(gomega.Equal([]Device{{gpu, []string{"a"}, []int{0}}}), "one that is taken is not given twice")
}

func TestAContainerHasTheDevicesThatThePluginPreferredForItsInitContainer(t *testing.T) {
	for _, test := range []struct {
		count  string
		prefer []string
		calls  []string
	}{
		{"1", []string{"b"}, []string{"allocate c"}},
		{"2", []string{"b", "a"}, []string{"prefer a,b,c", "allocate c,b"}},
		{"2", []string{"a", "c"}, []string{"prefer a,b,c", "allocate a,c"}},
	} {
		f := newFixture(t, t.TempDir())
		p := f.plugin(&pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true}, on(0, "a"), on(0, "b"), on(0, "c"), on(1, "d"))
		f.Eventually(f.counts).Should(gomega.Equal("4/4"))
		pod, main := needing("1", test.count)
		before, _ := needing("1", "1")
		before.Spec.Containers[0].Name = "first"
		pod.Spec.InitContainers = before.Spec.Containers
		for _, c := range []*corev1.Container{&pod.Spec.InitContainers[0], main} {
			f.Expect(f.Allocate(pod, c, topology.NewMask(0))).To(gomega.Succeed())
		}
		for _, start := range []struct {
			container string
			prefer    []string
		}{{"first", []string{"c"}}, {"c", test.prefer}} {
			p.prefer = start.prefer
			_, err := f.Start(t.Context(), "1", start.container)
			f.Expect(err).NotTo(gomega.HaveOccurred())
		}
		f.Expect(p.calls()[1:]).To(gomega.Equal(append([]string{"allocate c"}, test.calls...)))
		if test.count == "2" {
			f.Expect(p.must).To(gomega.Equal([]string{"c"}), "no other one instead of it")
		}
	}
}

func TestAContainerMayHaveTheDevicesOfContainersThatStartLater(t *testing.T) {
	f := newFixture(t, t.TempDir())
	p := f.plugin(&pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true}, on(0, "a"), on(0, "b"), on(0, "c"), on(0, "d"))
	f.Eventually(f.counts).Should(gomega.Equal("4/4"))
	pod, main := needing("1", "2")
	init, _ := needing("1", "1")
	other, _ := needing("1", "1")
	init.Spec.Containers[0].Name, other.Spec.Containers[0].Name = "first", "other"
	pod.Spec.InitContainers = init.Spec.Containers
	for _, c := range []*corev1.Container{&pod.Spec.InitContainers[0], main, &other.Spec.Containers[0]} {
		f.Expect(f.Allocate(pod, c, topology.NewMask(0))).To(gomega.Succeed())
	}
	for _, start := range []struct {
		container string
		prefer    []string
	}{{"first", []string{"b"}}, {"c", []string{"b", "c"}}, {"other", []string{"a"}}} {
		p.prefer = start.prefer
		_, err := f.Start(t.Context(), "1", start.container)
		f.Expect(err).NotTo(gomega.HaveOccurred())
	}
	f.Expect(p.calls()).To(gomega.Equal([]string{"prefer a,b,c,d", "allocate b", "prefer a,b,c,d", "allocate b,c", "prefer a,d", "allocate a"}))
	f.Expect(f.Of("1", "c")).To(gomega.Equal([]Device{{gpu, []string{"b", "c"}, []int{0}}}))
	f.Expect(f.Of("1", "other")).To(gomega.Equal([]Device{{gpu, []string{"a"}, []int{0}}}))
}

func TestThePluginChoosesTheDevicesThatTheWantedNodesDoNotHave(t *testing.T) {
	f := newFixture(t, t.TempDir())
	p := f.plugin(&pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true}, on(0, "a"), on(1, "b"), on(1, "c"))
	f.Eventually(f.counts).Should(gomega.Equal("3/3"))
	pod, c := needing("1", "2")
	p.prefer = []string{"c", "a"}
	f.Expect(f.Allocate(pod, c, topology.NewMask(0))).To(gomega.Succeed())
	_, err := f.Start(t.Context(), "1", "c")
	f.Expect(err).NotTo(gomega.HaveOccurred())
	f.Expect(p.calls()).To(gomega.Equal([]string{"prefer a,b,c", "allocate c,a"}))
	f.Expect(p.must).To(gomega.Equal([]string{"a"}))
}

func TestAResourceWhosePluginIsGoneIsForgotten(t *testing.T) {
	dir := t.TempDir()
	f := newFixture(t, dir)
	p := f.plugin(nil, on(0, "a"))
	f.Eventually(f.counts).Should(gomega.Equal("1/1"))
	pod, c := needing("1", "1")
	f.Expect(f.Allocate(pod, c, 0)).To(gomega.Succeed())
	p.server.Stop()
	f.Eventually(f.counts).Should(gomega.Equal("1/0"))
	removed := func() []corev1.ResourceName {
		_, _, removed := f.Resources()
		return removed
	}
	f.clock.Step(forgotten + time.Second)
	f.Expect(removed()).To(gomega.ConsistOf(corev1.ResourceName(gpu)), "a pod has a device")
	f.Release("1")
	f.Expect(removed()).To(gomega.BeEmpty(), "others may set it in the Node")
	f.Expect(f.Allocate(pod, c, 0)).To(gomega.Succeed(), "the resource is of others")
	f.stop()
	f = newFixture(t, dir)
	f.Expect(f.counts()).To(gomega.BeEmpty(), "after a restart")
}

func TestTheNodeIsResetOnceAfterTheCheckpointIsLost(t *testing.T) {
	dir := t.TempDir()
	f := newFixture(t, dir)
	restart := func() {
		f.stop()
		f = newFixture(t, dir)
	}
	f.Expect(f.Unreset()).To(gomega.BeTrue(), "there is no checkpoint")
	f.plugin(nil, on(0, "a"))
	f.Eventually(f.counts).Should(gomega.Equal("1/1"))
	restart()
	f.Expect(f.Unreset()).To(gomega.BeTrue(), "the agent has ended before the Node was reset")
	f.Expect(f.Reset()).To(gomega.Succeed())
	f.Expect(f.Unreset()).To(gomega.BeFalse())
	restart()
	f.Expect(f.Unreset()).To(gomega.BeFalse())
	f.Expect(os.Remove(filepath.Join(dir, checkpointName))).To(gomega.Succeed())
	restart()
	f.Expect(f.Unreset()).To(gomega.BeTrue())
}

func TestDevicesFollowTheirPlugin(t *testing.T) {
	dir := t.TempDir()
	f := newFixture(t, dir)
	p := f.plugin(nil, on(0, "a"), on(0, "b"))
	f.Eventually(f.counts).Should(gomega.Equal("2/2"))
	sick := on(0, "b")
	sick.Health = pluginapi.Unhealthy
	p.list <- []*pluginapi.Device{on(0, "a"), sick}
	f.Eventually(f.counts).Should(gomega.Equal("2/1"))
	pod, c := needing("1", "1")
	f.Expect(f.Allocate(pod, c, 0)).To(gomega.Succeed())
	if _, err := f.Start(t.Context(), "1", "c"); err != nil {
		t.Fatal(err)
	}
	f.Expect(f.Save()).To(gomega.Succeed())

	p.server.Stop()
	f.Eventually(f.counts).Should(gomega.Equal("2/0"))
	f.clock.Step(grace + time.Second)
	f.Expect(f.counts()).To(gomega.BeEmpty())
	f.plugin(nil, on(0, "a"), on(0, "b"), on(1, "c"))
	f.Eventually(f.counts).Should(gomega.Equal("3/3"))

	f.stop()
	f = newFixture(t, dir)
	f.Expect(filepath.Join(dir, "gpu.sock")).NotTo(gomega.BeAnExistingFile(), "its removal lets the plugin register again")
	f.Expect(f.counts()).To(gomega.Equal("0/0"))
	got, err := f.Start(t.Context(), "1", "c")
	f.Expect(err).NotTo(gomega.HaveOccurred(), "a container restarts without the plugin")
	f.Expect(got.Devices).To(gomega.HaveLen(1))
	f.plugin(nil, on(0, "a"), on(0, "b"))
	f.Eventually(f.counts).Should(gomega.Equal("2/2"))
	other, c2 := needing("2", "2")
	f.Expect(f.Allocate(other, c2, 0)).NotTo(gomega.Succeed(), "device a still is the first pod's")
}

func TestPluginsAllocateDevicesAgainAfterAReboot(t *testing.T) {
	dir := t.TempDir()
	f := newFixture(t, dir)
	p := f.plugin(nil, on(0, "a"), on(0, "b"))
	f.Eventually(f.counts).Should(gomega.Equal("2/2"))
	pod, c := needing("1", "1")
	f.Expect(f.Allocate(pod, c, 0)).To(gomega.Succeed())
	_, err := f.Start(t.Context(), "1", "c")
	f.Expect(err).NotTo(gomega.HaveOccurred())
	f.Expect(p.calls()).To(gomega.Equal([]string{"allocate a"}))

	f.stop()
	f = newBootedFixture(t, dir, "next boot")
	_, err = f.Start(t.Context(), "1", "c")
	f.Expect(err).To(gomega.MatchError(gomega.ContainSubstring("the device plugin is not registered")))
	p = f.plugin(nil, on(0, "a"), on(0, "b"))
	f.Eventually(f.counts).Should(gomega.Equal("2/2"))
	for range 2 {
		_, err = f.Start(t.Context(), "1", "c")
		f.Expect(err).NotTo(gomega.HaveOccurred())
	}
	f.Expect(p.calls()).To(gomega.Equal([]string{"allocate a"}), "once for each boot")
}

// The plugin is asked for the same devices, which the pod resources API has named (docs/svclet.md).
func TestAPluginPrefersNoOtherDevicesAfterAReboot(t *testing.T) {
	dir, options := t.TempDir(), &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true}
	f := newFixture(t, dir)
	p := f.plugin(options, on(0, "a"), on(0, "b"), on(0, "c"))
	f.Eventually(f.counts).Should(gomega.Equal("3/3"))
	pod, c := needing("1", "1")
	f.Expect(f.Allocate(pod, c, 0)).To(gomega.Succeed())
	p.prefer = []string{"c"}
	_, err := f.Start(t.Context(), "1", "c")
	f.Expect(err).NotTo(gomega.HaveOccurred())
	f.Expect(p.calls()).To(gomega.Equal([]string{"prefer a,b,c", "allocate c"}))

	for _, boot := range []string{"second", "second", "third"} { // a restart of svclet in the second one, too
		f.stop()
		f = newBootedFixture(t, dir, boot)
		f.Expect(f.Save()).To(gomega.Succeed())
	}
	p = f.plugin(options, on(0, "a"), on(0, "b"), on(0, "c"))
	p.prefer = []string{"b"}
	f.Eventually(f.counts).Should(gomega.Equal("3/3"))
	_, err = f.Start(t.Context(), "1", "c")
	f.Expect(err).NotTo(gomega.HaveOccurred())
	f.Expect(p.calls()).To(gomega.Equal([]string{"allocate c"}))
}

// Containers of a plugin that only counts need nothing.
func TestAnEmptyResponseIsKept(t *testing.T) {
	dir := t.TempDir()
	f := newFixture(t, dir)
	p := f.plugin(nil, on(0, "a"))
	p.empty = true
	f.Eventually(f.counts).Should(gomega.Equal("1/1"))
	pod, c := needing("1", "1")
	f.Expect(f.Allocate(pod, c, 0)).To(gomega.Succeed())
	for range 2 {
		_, err := f.Start(t.Context(), "1", "c")
		f.Expect(err).NotTo(gomega.HaveOccurred())
		f.stop()
		f = newFixture(t, dir)
	}
	f.Expect(p.calls()).To(gomega.Equal([]string{"allocate a"}))
}

func TestAnUpgradeFromACheckpointWithoutABootIsNoReboot(t *testing.T) {
	dir := t.TempDir()
	f := newBootedFixture(t, dir, "") // the field is left out, as earlier versions did
	f.plugin(nil, on(0, "a"))
	f.Eventually(f.counts).Should(gomega.Equal("1/1"))
	pod, c := needing("1", "1")
	f.Expect(f.Allocate(pod, c, 0)).To(gomega.Succeed())
	_, err := f.Start(t.Context(), "1", "c")
	f.Expect(err).NotTo(gomega.HaveOccurred())
	text, err := os.ReadFile(filepath.Join(dir, checkpointName))
	f.Expect(err).NotTo(gomega.HaveOccurred())
	f.Expect(string(text)).NotTo(gomega.ContainSubstring(`"boot"`))

	f.stop()
	f = newFixture(t, dir)
	got, err := f.Start(t.Context(), "1", "c")
	f.Expect(err).NotTo(gomega.HaveOccurred(), "a container restarts without the plugin")
	f.Expect(got.Devices).To(gomega.HaveLen(1))
}

func TestBadRegistrationsAreRefused(t *testing.T) {
	f := newFixture(t, t.TempDir())
	for want, request := range map[string]*pluginapi.RegisterRequest{
		`unsupported version "v1"`:             {Version: "v1", Endpoint: "x", ResourceName: gpu},
		"must be that of an extended resource": {Version: pluginapi.Version, Endpoint: "x", ResourceName: "cpu"},
		"must be the name of a socket":         {Version: pluginapi.Version, Endpoint: "../x", ResourceName: gpu},
	} {
		f.Expect(f.register(request)).To(gomega.MatchError(gomega.ContainSubstring(want)))
	}
}
