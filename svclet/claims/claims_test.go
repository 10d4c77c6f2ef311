package claims

import (
	"context"
	"errors"
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
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"
	drabeta "k8s.io/kubelet/pkg/apis/dra/v1beta1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/plugins"
)

const gpus = "gpu.example.com"

// fakeDriver is a driver that prepares the device gpu-0 for each claim.
type fakeDriver struct {
	draapi.UnimplementedDRAPluginServer
	mu     sync.Mutex
	called []string
	fail   string // the error of each claim
	leave  bool   // leaves claims out
	gate   chan struct{}
	// path is that of its socket, stop ends its server.
	path string
	stop func()
}

func (d *fakeDriver) call(verb string, claims []*draapi.Claim) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	for _, c := range claims {
		names = append(names, c.GetNamespace()+"/"+c.GetName()+"="+c.GetUid())
	}
	slices.Sort(names)
	d.called = append(d.called, verb+" "+strings.Join(names, ","))
}

func (d *fakeDriver) calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.called)
}

func (d *fakeDriver) answers(fail string, leave bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail, d.leave = fail, leave
}

func (d *fakeDriver) answer() (string, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fail, d.leave
}

// NodePrepareResources implements the driver.
func (d *fakeDriver) NodePrepareResources(_ context.Context, r *draapi.NodePrepareResourcesRequest) (*draapi.NodePrepareResourcesResponse, error) {
	d.call("prepare", r.GetClaims())
	if d.gate != nil {
		<-d.gate
	}
	response := &draapi.NodePrepareResourcesResponse{Claims: map[string]*draapi.NodePrepareResourceResponse{}}
	fail, leave := d.answer()
	for _, c := range r.GetClaims() {
		if !leave {
			response.Claims[c.GetUid()] = &draapi.NodePrepareResourceResponse{Error: fail, Devices: []*draapi.Device{
				{RequestNames: []string{"large/first"}, PoolName: "pool", DeviceName: "gpu-0", CdiDeviceIds: []string{gpus + "/gpu=0", gpus + "/all=all"}},
				{RequestNames: []string{"small"}, PoolName: "pool", DeviceName: "gpu-1", CdiDeviceIds: []string{gpus + "/gpu=1", gpus + "/all=all"}},
			}}
		}
	}
	return response, nil
}

// NodeUnprepareResources implements the driver.
func (d *fakeDriver) NodeUnprepareResources(_ context.Context, r *draapi.NodeUnprepareResourcesRequest) (*draapi.NodeUnprepareResourcesResponse, error) {
	d.call("unprepare", r.GetClaims())
	response := &draapi.NodeUnprepareResourcesResponse{Claims: map[string]*draapi.NodeUnprepareResourceResponse{}}
	fail, leave := d.answer()
	for _, c := range r.GetClaims() {
		if !leave {
			response.Claims[c.GetUid()] = &draapi.NodeUnprepareResourceResponse{Error: fail}
		}
	}
	return response, nil
}

// fixture is a manager with an API server of claims.
type fixture struct {
	*Manager
	*gomega.WithT
	t       *testing.T
	dir     string
	objects map[string]*resourceapi.ResourceClaim
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{WithT: gomega.NewWithT(t), t: t, dir: t.TempDir(), objects: map[string]*resourceapi.ResourceClaim{}}
	f.restart()
	return f
}

// restart makes another manager, as a restarted agent does.
func (f *fixture) restart() {
	f.t.Helper()
	m, err := New(Options{Dir: f.dir, Get: func(_ context.Context, _, name string) (*resourceapi.ResourceClaim, error) {
		if c := f.objects[name]; c != nil {
			return c, nil
		}
		return nil, errors.New("not found")
	}})
	f.Expect(err).NotTo(gomega.HaveOccurred())
	f.t.Cleanup(m.Close)
	f.Manager = m
}

// register registers a driver that serves these versions of the API.
func (f *fixture) register(versions ...string) *fakeDriver {
	f.t.Helper()
	dir, err := os.MkdirTemp("", "dra") // the path of a socket is short
	f.Expect(err).NotTo(gomega.HaveOccurred())
	f.t.Cleanup(func() { os.RemoveAll(dir) })
	d := &fakeDriver{path: filepath.Join(dir, "s")}
	f.serve(d, versions...)
	f.Expect(f.Register(f.t.Context(), plugins.Plugin{Name: gpus, Endpoint: d.path, Versions: versions})).To(gomega.Succeed())
	return d
}

// serve serves the API of a driver until stop is called.
func (f *fixture) serve(d *fakeDriver, versions ...string) {
	f.t.Helper()
	listener, err := net.Listen("unix", d.path)
	f.Expect(err).NotTo(gomega.HaveOccurred())
	server := grpc.NewServer()
	if slices.Contains(versions, draapi.DRAPluginService) {
		draapi.RegisterDRAPluginServer(server, d)
	} else {
		drabeta.RegisterDRAPluginServer(server, drabeta.V1ServerWrapper{DRAPluginServer: d})
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	d.stop = func() { server.Stop(); serving.Wait() }
	f.t.Cleanup(d.stop)
}

// claim makes a claim that is allocated and reserved for pods.
func (f *fixture) claim(name string, pods ...*corev1.Pod) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}
	c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
		{Request: "large/first", Driver: gpus, Pool: "pool", Device: "gpu-0"}, {Request: "small", Driver: gpus, Pool: "pool", Device: "gpu-1"},
	}}}
	for _, p := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID})
	}
	f.objects[name] = c
	return c
}

// podOf returns a pod that uses claims by their names.
func podOf(name string, claims ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("pod-" + name)}}
	for _, c := range claims {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "my-" + c, ResourceClaimName: ptr.To(c)})
	}
	return p
}

// containerOf returns a container that uses requests of claims, as "my-a" or "my-a small".
func containerOf(claims ...string) *corev1.Container {
	c := &corev1.Container{}
	for _, text := range claims {
		name, request, _ := strings.Cut(text, " ")
		c.Resources.Claims = append(c.Resources.Claims, corev1.ResourceClaim{Name: name, Request: request})
	}
	return c
}

func TestAClaimIsPreparedOnceForAllPodsAndUnpreparedAfterTheLast(t *testing.T) {
	for _, version := range []string{draapi.DRAPluginService, drabeta.DRAPluginService} {
		t.Run(version, func(t *testing.T) {
			f := newFixture(t)
			d := f.register(version)
			one, two := podOf("one", "a", "b"), podOf("two", "a")
			f.claim("a", one, two)
			f.claim("b", one)
			f.Expect(f.Prepare(t.Context(), one)).To(gomega.Succeed())
			f.Expect(f.Prepare(t.Context(), two)).To(gomega.Succeed())
			f.Expect(f.Prepare(t.Context(), one)).To(gomega.Succeed(), "again")
			f.Expect(d.calls()).To(gomega.Equal([]string{"prepare ns/a=uid-a,ns/b=uid-b"}))

			f.restart()
			f.Expect(f.Register(t.Context(), plugins.Plugin{Name: gpus, Endpoint: d.path, Versions: []string{version}})).To(gomega.Succeed())
			f.Expect(f.Pods()).To(gomega.ConsistOf(one.UID, two.UID))
			f.Expect(f.Unprepare(t.Context(), one.UID)).To(gomega.Succeed())
			f.Expect(f.Pods()).To(gomega.Equal([]types.UID{two.UID}))
			f.Expect(f.CDIDevices(two, containerOf("my-a small"))).To(gomega.HaveLen(2))
			f.Expect(f.Unprepare(t.Context(), two.UID)).To(gomega.Succeed())
			f.Expect(f.Unprepare(t.Context(), two.UID)).To(gomega.Succeed(), "again")
			f.Expect(d.calls()[1:]).To(gomega.Equal([]string{"unprepare ns/b=uid-b", "unprepare ns/a=uid-a"}))
			f.Expect(f.Pods()).To(gomega.BeEmpty())
		})
	}
}

func TestAPodDoesNotUseAClaimIfThatCannotBeSaved(t *testing.T) {
	f := newFixture(t)
	d := f.register(draapi.DRAPluginService)
	one, two := podOf("one", "a"), podOf("two", "a", "b")
	f.claim("a", one, two)
	f.claim("b", two)
	f.Expect(f.Prepare(t.Context(), one)).To(gomega.Succeed())
	f.Expect(os.RemoveAll(f.dir)).To(gomega.Succeed())
	f.Expect(f.Prepare(t.Context(), two)).To(gomega.MatchError(os.ErrNotExist))
	f.Expect(f.Prepare(t.Context(), one)).To(gomega.Succeed(), "it uses it already")
	f.Expect(os.Mkdir(f.dir, 0o750)).To(gomega.Succeed())
	f.Expect(f.Pods()).To(gomega.Equal([]types.UID{one.UID}))
	f.Expect(f.Unprepare(t.Context(), one.UID)).To(gomega.Succeed())
	f.Expect(d.calls()).To(gomega.Equal([]string{"prepare ns/a=uid-a", "unprepare ns/a=uid-a"}))
}

func TestAContainerHasTheDevicesOfItsRequests(t *testing.T) {
	f := newFixture(t)
	f.register(draapi.DRAPluginService)
	p := podOf("p", "a")
	f.claim("a", p)
	_, err := f.CDIDevices(p, containerOf("my-a"))
	f.Expect(err).To(gomega.MatchError(`resource claim "my-a" of the pod is not prepared`))
	f.Expect(f.Prepare(t.Context(), p)).To(gomega.Succeed())
	for _, test := range []struct {
		claims []string
		want   []string
	}{
		{nil, nil},
		{[]string{"my-a"}, []string{"gpu=0", "all=all", "gpu=1"}},
		{[]string{"my-a large"}, []string{"gpu=0", "all=all"}},
		{[]string{"my-a small"}, []string{"gpu=1", "all=all"}},
		{[]string{"my-a small", "my-a large"}, []string{"gpu=1", "all=all", "gpu=0"}},
		{[]string{"my-a other"}, nil},
	} {
		got, err := f.CDIDevices(p, containerOf(test.claims...))
		f.Expect(err).NotTo(gomega.HaveOccurred())
		for i := range got {
			got[i] = strings.TrimPrefix(got[i], gpus+"/")
		}
		f.Expect(got).To(gomega.Equal(test.want), "%s", test.claims)
	}
	f.Expect(f.Of(p, containerOf("my-a small"))).To(gomega.Equal([]Resource{
		{ClaimNamespace: "ns", ClaimName: "a", Driver: gpus, Pool: "pool", Device: "gpu-1", CDI: []string{gpus + "/gpu=1", gpus + "/all=all"}},
	}))
}

func TestAContainerHasTheDevicesOfItsExtendedResources(t *testing.T) {
	f := newFixture(t)
	d := f.register(draapi.DRAPluginService)
	p := podOf("p", "a")
	p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "made", RequestMappings: []corev1.ContainerExtendedResourceRequest{
		{ContainerName: "one", ResourceName: "example.com/small", RequestName: "small"},
		{ContainerName: "two", ResourceName: "example.com/large", RequestName: "large"},
	}}
	f.claim("a", p)
	made := f.claim("made", p)
	f.Expect(f.Prepare(t.Context(), p)).To(gomega.MatchError(gomega.ContainSubstring("was not created for Pod ns/p")))
	made.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: p.Name, UID: p.UID, Controller: ptr.To(true)}}
	_, err := f.CDIDevices(p, &corev1.Container{Name: "one"})
	f.Expect(err).To(gomega.MatchError(`resource claim "<extended resources>" of the pod is not prepared`))
	f.Expect(f.Prepare(t.Context(), p)).To(gomega.Succeed())
	f.restart()
	f.Expect(f.CDIDevices(p, &corev1.Container{Name: "one"})).To(gomega.Equal([]string{gpus + "/gpu=1", gpus + "/all=all"}))
	f.Expect(f.CDIDevices(p, &corev1.Container{Name: "two"})).To(gomega.Equal([]string{gpus + "/gpu=0", gpus + "/all=all"}))
	f.Expect(f.CDIDevices(p, &corev1.Container{Name: "three"})).To(gomega.BeEmpty())
	f.Expect(f.Of(p, &corev1.Container{Name: "two"})).To(gomega.HaveExactElements(gomega.HaveField("ClaimName", "made")))
	f.Expect(d.calls()).To(gomega.Equal([]string{"prepare ns/a=uid-a,ns/made=uid-made"}))
}

func TestARestartedAgentKnowsWhatIsPreparedAndPreparesItAgainForANewSandbox(t *testing.T) {
	f := newFixture(t)
	f.register(draapi.DRAPluginService)
	p := podOf("p", "a")
	f.claim("a", p)
	f.Expect(f.Prepare(t.Context(), p)).To(gomega.Succeed())
	f.restart()
	f.Expect(f.CDIDevices(p, containerOf("my-a small"))).To(gomega.HaveLen(2))
	f.Expect(f.Pods()).To(gomega.Equal([]types.UID{p.UID}))

	f.Expect(f.Unprepare(t.Context(), p.UID)).To(gomega.MatchError(gomega.ContainSubstring("driver gpu.example.com is not registered")))
	d := f.register(draapi.DRAPluginService)
	f.Expect(f.Prepare(t.Context(), p)).To(gomega.Succeed())
	f.Expect(f.Unprepare(t.Context(), p.UID)).To(gomega.Succeed())
	f.Expect(d.calls()).To(gomega.Equal([]string{"prepare ns/a=uid-a", "unprepare ns/a=uid-a"}))
}

func TestClaimsThatCannotBePreparedAreErrorsThatSayWhy(t *testing.T) {
	p := podOf("p", "a")
	for _, test := range []struct {
		name  string
		setUp func(f *fixture)
		want  string
	}{
		{"no driver", func(f *fixture) { f.claim("a", p) }, "driver gpu.example.com is not registered on this node"},
		{"no claim", func(f *fixture) { f.register(draapi.DRAPluginService) }, "failed to get ResourceClaim ns/a: not found"},
		{"reserved for another pod", func(f *fixture) { f.claim("a", podOf("other")) }, "ResourceClaim ns/a is not reserved for the pod"},
		{"not allocated", func(f *fixture) { f.claim("a", p).Status.Allocation = nil }, "ResourceClaim ns/a is not allocated"},
		{"the driver fails", func(f *fixture) { f.claim("a", p); f.register(draapi.DRAPluginService).answers("no power", false) },
			"driver gpu.example.com cannot prepare ResourceClaim ns/a: no power"},
		{"the driver leaves it out", func(f *fixture) { f.claim("a", p); f.register(draapi.DRAPluginService).answers("", true) },
			"driver gpu.example.com has left out ResourceClaim ns/a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			test.setUp(f)
			f.Expect(f.Prepare(t.Context(), p)).To(gomega.MatchError(test.want))
		})
	}
}

func TestAPodWhoseDriverWasNeverCalledEndsWithoutIt(t *testing.T) {
	f := newFixture(t)
	p := podOf("p", "a")
	f.claim("a", p)
	f.Expect(f.Prepare(t.Context(), p)).NotTo(gomega.Succeed())
	f.Expect(f.Unprepare(t.Context(), p.UID)).To(gomega.Succeed())
	f.Expect(f.Pods()).To(gomega.BeEmpty())
}

func TestADriverThatFailsToUnprepareIsAskedAgain(t *testing.T) {
	f := newFixture(t)
	d := f.register(draapi.DRAPluginService)
	p := podOf("p", "a")
	f.claim("a", p)
	f.Expect(f.Prepare(t.Context(), p)).To(gomega.Succeed())
	d.answers("busy", false)
	f.Expect(f.Unprepare(t.Context(), p.UID)).To(gomega.MatchError("driver gpu.example.com cannot unprepare ResourceClaim ns/a: busy"))
	d.answers("", true)
	f.Expect(f.Unprepare(t.Context(), p.UID)).To(gomega.MatchError("driver gpu.example.com has left out ResourceClaim ns/a"))
	d.answers("", false)
	f.Expect(f.Unprepare(t.Context(), p.UID)).To(gomega.Succeed())
	f.Expect(f.Pods()).To(gomega.BeEmpty())
}

func TestAGeneratedClaimHasToBelongToThePod(t *testing.T) {
	f := newFixture(t)
	f.register(draapi.DRAPluginService)
	p := podOf("p")
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "my-a", ResourceClaimTemplateName: ptr.To("t")}}
	f.Expect(f.Prepare(t.Context(), p)).To(gomega.MatchError(gomega.ContainSubstring("not created yet")))
	p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "my-a"}}
	f.Expect(f.Prepare(t.Context(), p)).To(gomega.Succeed(), "the template yields none")
	f.Expect(f.CDIDevices(p, containerOf("my-a"))).To(gomega.BeEmpty())
	p.Status.ResourceClaimStatuses[0].ResourceClaimName = ptr.To("a")
	c := f.claim("a", p)
	f.Expect(f.Prepare(t.Context(), p)).To(gomega.MatchError(gomega.ContainSubstring("was not created for Pod ns/p")))
	c.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: p.Name, UID: p.UID, Controller: ptr.To(true)}}
	f.Expect(f.Prepare(t.Context(), p)).To(gomega.Succeed())
	f.Expect(f.CDIDevices(p, containerOf("my-a"))).NotTo(gomega.BeEmpty())
}

func TestTheEndOfAPodWaitsForThePreparationOfItsClaim(t *testing.T) {
	f := newFixture(t)
	d := f.register(draapi.DRAPluginService)
	d.gate = make(chan struct{})
	one, two := podOf("one", "a"), podOf("two", "a")
	f.claim("a", one, two)
	var both sync.WaitGroup
	both.Go(func() { f.Expect(f.Prepare(t.Context(), one)).To(gomega.Succeed()) })
	f.Eventually(d.calls).WithTimeout(time.Minute).Should(gomega.HaveLen(1))
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	f.Expect(f.Prepare(cancelled, two)).To(gomega.MatchError(context.Canceled))
	both.Go(func() { f.Expect(f.Unprepare(t.Context(), one.UID)).To(gomega.Succeed()) })
	close(d.gate)
	both.Wait()
	f.Expect(d.calls()).To(gomega.Equal([]string{"prepare ns/a=uid-a", "unprepare ns/a=uid-a"}))
}

func TestTheLastInstanceOfADriverIsUsed(t *testing.T) {
	f := newFixture(t)
	first := f.register(draapi.DRAPluginService)
	second := f.register(draapi.DRAPluginService)
	p := podOf("p", "a")
	f.claim("a", p)
	f.Expect(f.Prepare(t.Context(), p)).To(gomega.Succeed())
	f.Expect(second.calls()).To(gomega.HaveLen(1))
	f.mu.Lock()
	endpoint := f.drivers[gpus][1].endpoint
	f.mu.Unlock()
	f.Deregister(t.Context(), plugins.Plugin{Name: gpus, Endpoint: endpoint})
	f.Expect(f.Unprepare(t.Context(), p.UID)).To(gomega.Succeed())
	f.Expect(first.calls()).To(gomega.Equal([]string{"unprepare ns/a=uid-a"}))
	f.Expect(f.Register(t.Context(), plugins.Plugin{Name: gpus, Endpoint: "x", Versions: []string{"v1alpha3.Node"}})).
		To(gomega.MatchError(gomega.ContainSubstring("unsupported versions v1alpha3.Node of the DRA plugin API: must have v1.DRAPlugin or v1beta1.DRAPlugin")))
}
