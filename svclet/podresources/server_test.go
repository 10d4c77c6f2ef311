package podresources

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	"github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"

	"svc.dev/svc/svclet/allocation"
	"svc.dev/svc/svclet/claims"
	"svc.dev/svc/svclet/devices"
)

// held is a node on which container c of pod u has CPUs 1 and 2 and a device.
type held struct{}

func (held) Exclusive(uid types.UID, container string) []int64 {
	if uid == "u" && container == "c" {
		return []int64{1, 2}
	}
	return nil
}

func (held) AllocatableCPUs() []int64 { return []int64{1, 2, 3} }

func (held) Memory(uid types.UID, container string) []allocation.Memory {
	if uid == "u" && container == "c" {
		return []allocation.Memory{{Nodes: []int{0, 1}, Kind: corev1.ResourceMemory, Bytes: 5}}
	}
	return nil
}

func (held) AllocatableMemory() []allocation.Memory {
	return []allocation.Memory{{Nodes: []int{0}, Kind: corev1.ResourceMemory, Bytes: 7}}
}

func (held) Of(uid types.UID, container string) []devices.Device {
	if uid == "u" && container == "c" {
		return []devices.Device{{Resource: "example.com/gpu", IDs: []string{"a"}, Nodes: []int{1}}}
	}
	return nil
}

func (held) All() []devices.Device {
	return []devices.Device{{Resource: "example.com/gpu", IDs: []string{"a", "b"}}}
}

func (heldClaims) Of(_ *corev1.Pod, c *corev1.Container) []claims.Resource {
	if c.Name != "c" {
		return nil
	}
	return []claims.Resource{
		{ClaimNamespace: "ns", ClaimName: "a", Driver: "d", Pool: "p", Device: "0", CDI: []string{"d/gpu=0"}},
		{ClaimNamespace: "ns", ClaimName: "a", Driver: "d", Pool: "p", Device: "1", ShareID: "s"},
		{ClaimNamespace: "ns", ClaimName: "b", Driver: "d", Pool: "p", Device: "2"},
	}
}

// heldClaims are two claims of container c.
type heldClaims struct{}

func serve(t *testing.T, withoutGet bool) (api.PodResourcesListerClient, *gomega.WithT) {
	g := gomega.NewWithT(t)
	dir := filepath.Join(t.TempDir(), "pod-resources")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}, Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "setup"}}, Containers: []corev1.Container{{Name: "c"}, {Name: "d"}},
	}}
	s := New(Options{Dir: dir, Active: func() []*corev1.Pod { return []*corev1.Pod{pod} }, CPUs: held{}, Memory: held{}, Devices: held{}, Claims: heldClaims{}, WithoutGet: withoutGet})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, Socket), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	g.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(func() { _ = conn.Close(); cancel(); running.Wait() })
	return api.NewPodResourcesListerClient(conn), g
}

func TestTheResourcesOfContainersAreListed(t *testing.T) {
	client, g := serve(t, false)
	list, err := client.List(t.Context(), &api.ListPodResourcesRequest{})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(list.GetPodResources()).To(gomega.HaveLen(1))
	containers := list.GetPodResources()[0].GetContainers()
	g.Expect(containers).To(gomega.HaveLen(2), "init containers have ended")
	g.Expect(containers[0].GetCpuIds()).To(gomega.Equal([]int64{1, 2}))
	memory := containers[0].GetMemory()[0]
	g.Expect(memory.GetMemoryType()).To(gomega.Equal("memory"))
	g.Expect(memory.GetSize()).To(gomega.Equal(uint64(5)))
	g.Expect(memory.GetTopology().GetNodes()).To(gomega.HaveLen(2))
	device := containers[0].GetDevices()[0]
	g.Expect(device.GetResourceName()).To(gomega.Equal("example.com/gpu"))
	g.Expect(device.GetDeviceIds()).To(gomega.Equal([]string{"a"}))
	g.Expect(device.GetTopology().GetNodes()[0].GetID()).To(gomega.Equal(int64(1)))
	claimed := containers[0].GetDynamicResources()
	g.Expect(claimed).To(gomega.HaveLen(2))
	g.Expect(claimed[0].GetClaimResources()).To(gomega.HaveLen(2))
	g.Expect(claimed[0].GetClaimResources()[0].GetCdiDevices()[0].GetName()).To(gomega.Equal("d/gpu=0"))
	g.Expect(claimed[0].GetClaimResources()[1].GetShareId()).To(gomega.Equal("s"))
	g.Expect(claimed[1].GetClaimName()).To(gomega.Equal("b"))
	g.Expect(containers[1].GetDynamicResources()).To(gomega.BeEmpty())
	g.Expect(containers[1].GetCpuIds()).To(gomega.BeEmpty())

	one, err := client.Get(t.Context(), &api.GetPodResourcesRequest{PodNamespace: "ns", PodName: "p"})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(one.GetPodResources().GetName()).To(gomega.Equal("p"))
	_, err = client.Get(t.Context(), &api.GetPodResourcesRequest{PodNamespace: "ns", PodName: "q"})
	g.Expect(status.Code(err)).To(gomega.Equal(codes.NotFound))

	all, err := client.GetAllocatableResources(t.Context(), &api.AllocatableResourcesRequest{})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(all.GetCpuIds()).To(gomega.Equal([]int64{1, 2, 3}))
	g.Expect(all.GetDevices()[0].GetDeviceIds()).To(gomega.Equal([]string{"a", "b"}))
}

func TestGetObeysItsGate(t *testing.T) {
	client, g := serve(t, true)
	_, err := client.Get(t.Context(), &api.GetPodResourcesRequest{PodNamespace: "ns", PodName: "p"})
	g.Expect(status.Code(err)).To(gomega.Equal(codes.Unimplemented))
}
