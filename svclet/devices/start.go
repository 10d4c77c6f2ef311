package devices

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"svc.dev/svc/svclet/container"
)

// isExtended reports whether a name is that of an extended resource.
func isExtended(name string) bool {
	domain, _, qualified := strings.Cut(name, "/")
	return qualified && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") && !strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix)
}

// callTimeout bounds the calls of a plugin before a container starts (kubelet's
// KubeletPreStartContainerRPCTimeoutInSecs).
const callTimeout = pluginapi.KubeletPreStartContainerRPCTimeoutInSecs * time.Second

// Start prepares the devices of a container that is about to start, by its plugins, and
// returns what the container needs to use them.
func (m *Manager) Start(ctx context.Context, uid types.UID, name string) (container.Allocation, error) {
	var all container.Allocation
	for _, resource := range m.held(uid, name) {
		response, err := m.prepare(ctx, uid, name, resource)
		if err != nil {
			return container.Allocation{}, fmt.Errorf("devices %s: %w", resource, err)
		}
		m.add(&all, response)
	}
	return all, nil
}

// held returns the resources of which a container has devices.
func (m *Manager) held(uid types.UID, name string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.allocated[uid][name]))
}

// prepare asks the plugin, once for each container, how to use its devices, and before
// each start to prepare them if it wants that.
func (m *Manager) prepare(ctx context.Context, uid types.UID, name, resource string) (*pluginapi.ContainerAllocateResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	p := m.pluginOf(resource)
	held := m.starting(uid, name, resource)
	response := &pluginapi.ContainerAllocateResponse{}
	if held.Response != nil {
		if err := proto.Unmarshal(held.Response, response); err != nil {
			return nil, m.file.Unusable(err.Error())
		}
	}
	if p == nil {
		if held.Response != nil {
			return response, nil // the agent has restarted, and the plugin has not registered yet
		}
		return nil, fmt.Errorf("the device plugin is not registered")
	}
	if held.Response == nil {
		if !held.Again {
			held.IDs = m.preferred(ctx, p, uid, name, held.IDs)
		}
		began := m.o.Clock.Now()
		answer, err := p.client.Allocate(ctx, &pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: held.IDs}}})
		m.o.Allocated(p.resource, m.o.Clock.Since(began))
		if err != nil {
			return nil, fmt.Errorf("the device plugin cannot allocate %s: %w", strings.Join(held.IDs, ","), err)
		}
		if len(answer.GetContainerResponses()) != 1 {
			return nil, fmt.Errorf("the device plugin's response is for %d containers: must be for one", len(answer.GetContainerResponses()))
		}
		response = answer.GetContainerResponses()[0]
		if err := m.remember(uid, name, resource, response); err != nil {
			return nil, err
		}
	}
	if p.options.GetPreStartRequired() {
		if _, err := p.client.PreStartContainer(ctx, &pluginapi.PreStartContainerRequest{DevicesIds: held.IDs}); err != nil {
			return nil, fmt.Errorf("the device plugin cannot prepare %s: %w", strings.Join(held.IDs, ","), err)
		}
	}
	return response, nil
}

// starting returns a copy of the allocation of a container that starts, empty if the pod has been
// released.
func (m *Manager) starting(uid types.UID, name, resource string) allocation {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.allocated[uid][name][resource]; a != nil {
		a.started = true
		return allocation{IDs: slices.Clone(a.IDs), Response: a.Response, Again: a.Again}
	}
	return allocation{}
}

// remember stores the plugin's response.
func (m *Manager) remember(uid types.UID, name, resource string, response *pluginapi.ContainerAllocateResponse) error {
	encoded, err := proto.Marshal(response)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.allocated[uid][name][resource]
	if a == nil {
		return fmt.Errorf("the pod has ended")
	}
	// An empty response is not nil, so that the plugin is not asked again.
	a.Response = append([]byte{}, encoded...)
	return m.save()
}

// preferred lets the plugin choose among the devices that the container may have, if it offers
// that and there is a choice, and returns the devices that the container has then.
func (m *Manager) preferred(ctx context.Context, p *plugin, uid types.UID, name string, ids []string) []string {
	available, must := m.alternatives(p.resource, uid, name)
	if !p.options.GetGetPreferredAllocationAvailable() || len(must) == len(ids) {
		return ids
	}
	answer, err := p.client.GetPreferredAllocation(ctx, &pluginapi.PreferredAllocationRequest{ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{{
		AvailableDeviceIDs: available, MustIncludeDeviceIDs: must, AllocationSize: int32(len(ids)),
	}}})
	if err != nil || len(answer.GetContainerResponses()) != 1 {
		return ids // it is only a preference
	}
	wanted := answer.GetContainerResponses()[0].GetDeviceIDs()
	m.mu.Lock()
	defer m.mu.Unlock()
	available, must = m.alternativesLocked(p.resource, uid, name)
	a := m.allocated[uid][name][p.resource]
	if a == nil || len(wanted) != len(ids) || !subset(wanted, available) || !subset(must, wanted) {
		return ids
	}
	m.replace(uid, p.resource, a.IDs, wanted)
	a.IDs = slices.Clone(wanted)
	return a.IDs
}

// replace gives the containers of a pod that start later the devices that one had instead of those
// that it has now, and those that are to have the same ones as an init container its new ones. The
// caller holds mu.
func (m *Manager) replace(uid types.UID, resource string, before, after []string) {
	without := func(ids, others []string) []string {
		return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return slices.Contains(others, id) })
	}
	instead, added := map[string]string{}, without(after, before)
	for i, id := range without(before, after) {
		instead[id], instead[added[i]] = added[i], id
	}
	for _, resources := range m.allocated[uid] {
		a := resources[resource]
		if a == nil || !a.isPlanned() {
			continue
		}
		for _, ids := range [][]string{a.IDs, a.Must} {
			for i, id := range ids {
				ids[i] = cmp.Or(instead[id], id)
			}
		}
	}
}

// subset reports whether all ids are different, and in a list.
func subset(ids, of []string) bool {
	for i, id := range ids {
		if !slices.Contains(of, id) || slices.Contains(ids[:i], id) {
			return false
		}
	}
	return true
}

func (m *Manager) alternatives(resource string, uid types.UID, name string) (available, must []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.alternativesLocked(resource, uid, name)
}

// alternativesLocked returns the devices that a container may have, and those of them that it must
// have: its own, the free ones, and those that containers that start later can give it for its own,
// on the NUMA nodes that it may have devices of.
func (m *Manager) alternativesLocked(resource string, uid types.UID, name string) (available, must []string) {
	a := m.allocated[uid][name][resource]
	if a == nil {
		return nil, nil
	}
	devices := m.resources[resource].devices
	others := m.free(&corev1.Pod{}, resource)
	for _, resources := range m.allocated[uid] {
		if later := resources[resource]; later != nil && later.isPlanned() && later.Nodes == a.Nodes {
			others = append(others, slices.DeleteFunc(slices.Clone(later.IDs), func(id string) bool { return !devices[id].healthy || slices.Contains(later.Must, id) })...)
		}
	}
	available = slices.Clone(a.IDs)
	for _, id := range others {
		near := a.Nodes == 0 || slices.ContainsFunc(devices[id].nodes, a.Nodes.Has)
		if near && !slices.Contains(available, id) {
			available = append(available, id)
		}
	}
	slices.Sort(available)
	return available, slices.Clone(a.Must)
}

// add adds what a plugin's response asks for.
func (m *Manager) add(to *container.Allocation, response *pluginapi.ContainerAllocateResponse) {
	for _, name := range slices.Sorted(maps.Keys(response.GetEnvs())) {
		to.Envs = append(to.Envs, &runtimeapi.KeyValue{Key: name, Value: []byte(response.GetEnvs()[name])})
	}
	for _, mount := range response.GetMounts() {
		to.Mounts = append(to.Mounts, &runtimeapi.Mount{ContainerPath: mount.GetContainerPath(), HostPath: mount.GetHostPath(), Readonly: mount.GetReadOnly()})
	}
	for _, d := range response.GetDevices() {
		to.Devices = append(to.Devices, &runtimeapi.Device{ContainerPath: d.GetContainerPath(), HostPath: d.GetHostPath(), Permissions: d.GetPermissions()})
	}
	if len(response.GetAnnotations()) > 0 && to.Annotations == nil {
		to.Annotations = map[string]string{}
	}
	maps.Copy(to.Annotations, response.GetAnnotations())
	if !m.o.WithoutCDI {
		for _, d := range response.GetCdiDevices() {
			to.CDIDevices = append(to.CDIDevices, &runtimeapi.CDIDevice{Name: d.GetName()})
		}
	}
}
