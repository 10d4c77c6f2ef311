package agent

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/config"
)

// draDriver is a driver of resource claims, made with the library of drivers.
type draDriver struct {
	mu       sync.Mutex
	prepared map[types.UID]bool
	calls    int
}

// PrepareResourceClaims implements kubeletplugin.DRAPlugin.
func (d *draDriver) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	all := map[types.UID]kubeletplugin.PrepareResult{}
	for _, c := range claims {
		d.prepared[c.UID] = true
		all[c.UID] = kubeletplugin.PrepareResult{Devices: []kubeletplugin.Device{
			{Requests: []string{"gpu"}, PoolName: "pool", DeviceName: "gpu-0", CDIDeviceIDs: []string{"gpu.local/gpu=" + string(c.UID)}},
		}}
	}
	return all, nil
}

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin.
func (d *draDriver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := map[types.UID]error{}
	for _, c := range claims {
		delete(d.prepared, c.UID)
		all[c.UID] = nil
	}
	return all, nil
}

// HandleError implements kubeletplugin.DRAPlugin.
func (d *draDriver) HandleError(context.Context, error, string) {}

// WatchHealthStatus implements kubeletplugin.DRAPlugin.
func (d *draDriver) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}

func (d *draDriver) holds() []types.UID {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.prepared))
}

func TestAContainerGetsDevicesOfItsClaim(t *testing.T) {
	testDevicesOfAClaim(t, func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "mine", ResourceClaimName: ptr.To("gpu")}}
		p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "mine", Request: "gpu"}}
	})
}

func TestAnExtendedResourceIsDevicesOfAClaim(t *testing.T) {
	testDevicesOfAClaim(t, func(p *corev1.Pod) {
		list := corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
		p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "gpu", RequestMappings: []corev1.ContainerExtendedResourceRequest{
			{ContainerName: "app", ResourceName: "example.com/gpu", RequestName: "gpu"},
		}}
	})
}

// testDevicesOfAClaim tests the pod a, which uses the claim gpu.
func testDevicesOfAClaim(t *testing.T, use func(*corev1.Pod)) {
	c := newCluster(t)
	c.gates = func(g *config.Gates) { g.Claims = true }
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gpu", UID: "claim"}}
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Request: "gpu", Driver: "gpu.local", Pool: "pool", Device: "gpu-0"}},
	}}
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "a", UID: "uid-a"}}
	claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "a", UID: "uid-a", Controller: ptr.To(true)}}
	c.api.Put(claim)
	c.start()
	c.create("a", use)

	d := &draDriver{prepared: map[types.UID]bool{}}
	sockets, registry := filepath.Dir(c.runtime.Endpoint()[len("unix://"):]), filepath.Join(c.root(), "plugins_registry")
	c.Eventually(registry).Should(gomega.BeADirectory()) // the agent makes it
	helper, err := kubeletplugin.Start(t.Context(), d, kubeletplugin.DriverName("gpu.local"), kubeletplugin.NodeName("node"),
		kubeletplugin.KubeClient(fake.NewClientset(claim.DeepCopy())),
		kubeletplugin.PluginDataDirectoryPath(sockets), kubeletplugin.RegistrarDirectoryPath(registry))
	c.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(helper.Stop)
	c.Eventually(c.runs("a")).Should(gomega.BeTrue())
	c.Expect(d.holds()).To(gomega.Equal([]types.UID{"claim"}))
	c.Expect(c.runtime.CDIDevices(c.runtime.Container("uid-a", "app"))).To(gomega.Equal([]string{"gpu.local/gpu=claim"}))

	c.stop()
	c.start() // knows what is prepared
	c.Eventually(c.runs("a")).Should(gomega.BeTrue())
	c.delete("a")
	c.Eventually(c.gone("a")).Should(gomega.BeTrue())
	c.Expect(d.holds()).To(gomega.BeEmpty())
	d.mu.Lock()
	defer d.mu.Unlock()
	c.Expect(d.calls).To(gomega.Equal(1))
}

func TestAPodWithClaimsIsRejectedWithoutTheGate(t *testing.T) {
	c := newCluster(t)
	c.start()
	c.create("a", func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "mine", ResourceClaimName: ptr.To("gpu")}}
	})
	c.Eventually(func() string { return c.api.Pod("default", "a").Status.Message }).Should(gomega.ContainSubstring("the feature gate DynamicResourceAllocation is off on this node"))
}
