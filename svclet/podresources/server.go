// Package podresources owns the pod resources API (v1), by which monitoring agents on the
// node learn which CPUs, memory and devices containers have.
package podresources

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"

	"svc.dev/svc/svclet/allocation"
	"svc.dev/svc/svclet/claims"
	"svc.dev/svc/svclet/devices"
)

// CPUs are the CPUs of containers.
type CPUs interface {
	// Exclusive returns those that a container has alone, AllocatableCPUs those that
	// containers can have alone.
	Exclusive(uid types.UID, container string) []int64
	AllocatableCPUs() []int64
}

// Memory is the memory of containers.
type Memory interface {
	// Memory returns what a container has alone, AllocatableMemory what containers can
	// have alone.
	Memory(uid types.UID, container string) []allocation.Memory
	AllocatableMemory() []allocation.Memory
}

// Devices are the devices of containers.
type Devices interface {
	Of(uid types.UID, container string) []devices.Device
	All() []devices.Device
}

// Claims are the resource claims of containers.
type Claims interface {
	Of(p *corev1.Pod, c *corev1.Container) []claims.Resource
}

// Options configure a server.
type Options struct {
	// Dir is the directory of the socket.
	Dir     string
	Active  func() []*corev1.Pod
	CPUs    CPUs
	Memory  Memory
	Devices Devices
	// Claims is nil if the devices of resource claims are not shown
	// (SvcletPodResourcesDynamicResources=false).
	Claims Claims
	// WithoutGet refuses the method Get (SvcletPodResourcesGet=false).
	WithoutGet bool
}

// Server serves the API.
type Server struct {
	api.UnimplementedPodResourcesListerServer
	o Options
}

// Socket is the name of the socket in [Options.Dir].
const Socket = "kubelet.sock"

// New returns a server.
func New(o Options) *Server { return &Server{o: o} }

// Run serves until ctx is done.
func (s *Server) Run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	listener, err := s.listen()
	if err != nil {
		logger.Error(err, "Failed to listen for clients of the pod resources API", "dir", s.o.Dir)
		return
	}
	server := grpc.NewServer()
	api.RegisterPodResourcesListerServer(server, s)
	stopped := context.AfterFunc(ctx, server.Stop)
	defer stopped()
	if err := server.Serve(listener); err != nil && ctx.Err() == nil {
		logger.Error(err, "Failed to serve the pod resources API")
	}
}

func (s *Server) listen() (net.Listener, error) {
	if err := os.MkdirAll(s.o.Dir, 0o750); err != nil {
		return nil, err
	}
	path := filepath.Join(s.o.Dir, Socket)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("removing the socket of an earlier process: %w", err)
	}
	return net.Listen("unix", path)
}

// List implements the API: the resources of all pods that use some of the node.
func (s *Server) List(context.Context, *api.ListPodResourcesRequest) (*api.ListPodResourcesResponse, error) {
	response := &api.ListPodResourcesResponse{}
	for _, p := range s.o.Active() {
		response.PodResources = append(response.PodResources, s.of(p))
	}
	return response, nil
}

// Get implements the API: the resources of one pod.
func (s *Server) Get(_ context.Context, request *api.GetPodResourcesRequest) (*api.GetPodResourcesResponse, error) {
	if s.o.WithoutGet {
		return nil, status.Error(codes.Unimplemented, "PodResources API Get method disabled: the feature gate SvcletPodResourcesGet is off")
	}
	for _, p := range s.o.Active() {
		if p.Namespace == request.GetPodNamespace() && p.Name == request.GetPodName() {
			return &api.GetPodResourcesResponse{PodResources: s.of(p)}, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "pod %s in namespace %s not found", request.GetPodName(), request.GetPodNamespace())
}

// GetAllocatableResources implements the API.
func (s *Server) GetAllocatableResources(context.Context, *api.AllocatableResourcesRequest) (*api.AllocatableResourcesResponse, error) {
	return &api.AllocatableResourcesResponse{
		CpuIds: s.o.CPUs.AllocatableCPUs(), Memory: shownMemory(s.o.Memory.AllocatableMemory()), Devices: shown(s.o.Devices.All()),
	}, nil
}

// of returns the resources of a pod's containers that run together.
func (s *Server) of(p *corev1.Pod) *api.PodResources {
	all := &api.PodResources{Name: p.Name, Namespace: p.Namespace}
	sidecars := slices.DeleteFunc(slices.Clone(p.Spec.InitContainers), func(c corev1.Container) bool {
		return c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways
	})
	for _, c := range slices.Concat(sidecars, p.Spec.Containers) {
		resources := &api.ContainerResources{
			Name: c.Name, CpuIds: s.o.CPUs.Exclusive(p.UID, c.Name), Memory: shownMemory(s.o.Memory.Memory(p.UID, c.Name)), Devices: shown(s.o.Devices.Of(p.UID, c.Name)),
		}
		if s.o.Claims != nil {
			resources.DynamicResources = shownClaims(s.o.Claims.Of(p, &c))
		}
		all.Containers = append(all.Containers, resources)
	}
	return all
}

// shownClaims returns the devices of claims, one entry for each claim.
func shownClaims(list []claims.Resource) []*api.DynamicResource {
	var all []*api.DynamicResource
	for _, r := range list {
		i := slices.IndexFunc(all, func(d *api.DynamicResource) bool {
			return d.GetClaimNamespace() == r.ClaimNamespace && d.GetClaimName() == r.ClaimName
		})
		if i < 0 {
			i = len(all)
			all = append(all, &api.DynamicResource{ClaimNamespace: r.ClaimNamespace, ClaimName: r.ClaimName})
		}
		device := &api.ClaimResource{DriverName: r.Driver, PoolName: r.Pool, DeviceName: r.Device}
		if r.ShareID != "" {
			device.ShareId = &r.ShareID
		}
		for _, name := range r.CDI {
			device.CdiDevices = append(device.CdiDevices, &api.CDIDevice{Name: name})
		}
		all[i].ClaimResources = append(all[i].ClaimResources, device)
	}
	return all
}

func shownMemory(list []allocation.Memory) []*api.ContainerMemory {
	var all []*api.ContainerMemory
	for _, m := range list {
		of := &api.ContainerMemory{MemoryType: string(m.Kind), Size: uint64(m.Bytes), Topology: &api.TopologyInfo{}}
		for _, node := range m.Nodes {
			of.Topology.Nodes = append(of.Topology.Nodes, &api.NUMANode{ID: int64(node)})
		}
		all = append(all, of)
	}
	return all
}

func shown(list []devices.Device) []*api.ContainerDevices {
	var all []*api.ContainerDevices
	for _, d := range list {
		device := &api.ContainerDevices{ResourceName: d.Resource, DeviceIds: d.IDs}
		for _, node := range d.Nodes {
			if device.Topology == nil {
				device.Topology = &api.TopologyInfo{}
			}
			device.Topology.Nodes = append(device.Topology.Nodes, &api.NUMANode{ID: int64(node)})
		}
		all = append(all, device)
	}
	return all
}
