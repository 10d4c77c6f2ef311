// Package devices owns the devices of the node: the plugins that offer them (device plugin
// API v1beta1), and which container has which device.
package devices

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/checkpoint"
	"svc.dev/svc/svclet/topology"
)

// Options configure a manager.
type Options struct {
	// Dir is the directory of the registration socket and of the plugins' sockets.
	Dir string
	// Nodes are the machine's NUMA nodes.
	Nodes []int
	// Boot identifies the boot of the machine: what plugins answered before is of no use after
	// another one, as the numbers of devices may have changed.
	Boot string
	// WithoutCDI ignores the CDI devices of plugins (DevicePluginCDIDevices=false).
	WithoutCDI bool
	// Changed is called when the devices of the node have changed. It must not block.
	Changed func()
	// HealthChanged is called with the pods that have a device whose health has changed. It must
	// not block; nil does nothing.
	HealthChanged func(pods []types.UID)
	// Registered is called when the plugin of a resource has registered, Allocated when it
	// has answered an allocation, after a time.
	Registered func(resource string)
	Allocated  func(resource string, took time.Duration)
	Clock      clock.Clock
}

// Manager knows the devices of the node and to which containers they are allocated.
type Manager struct {
	o    Options
	file checkpoint.File

	mu        sync.Mutex
	resources map[string]*offer
	allocated map[types.UID]map[string]map[string]*allocation // by pod, container, resource
	unreset   bool
	// plugins are the connections, which Run waits for.
	plugins sync.WaitGroup
}

// offer is a resource as its plugin offers it.
type offer struct {
	// plugin is nil while none is connected; then no device is healthy.
	plugin  *plugin
	devices map[string]device
	// gone is when the last plugin ended.
	gone time.Time
}

type device struct {
	healthy bool
	nodes   []int // NUMA nodes; none if the plugin does not say
}

// allocation are the devices of one resource that a container has.
type allocation struct {
	IDs []string `json:"ids"`
	// Response is the plugin's, in protobuf; nil before the first start in this boot.
	Response []byte `json:"response"`
	// Again is true if the plugin has allocated the devices in an earlier boot.
	Again bool `json:"again,omitempty"`
	// Must are those of the devices that the plugin may not replace by others that it prefers,
	// Nodes the NUMA nodes that it may take others from; all if that is 0.
	Must  []string      `json:"must,omitempty"`
	Nodes topology.Mask `json:"nodes,omitempty"`
	// started is true when the container has begun to start, since the agent did.
	started bool
}

// isPlanned reports whether the plugin has not been asked about the devices, so that others can
// take their place.
func (a *allocation) isPlanned() bool { return !a.started && a.Response == nil && !a.Again }

// The checkpoint of devices, in [Options.Dir].
const (
	checkpointName    = "svclet_internal_checkpoint"
	checkpointVersion = 1
)

// saved is the content of the checkpoint.
type saved struct {
	Allocated map[types.UID]map[string]map[string]*allocation `json:"allocated"`
	// Resources are those that plugins had registered. Until they register again, the
	// node has none of their devices.
	Resources []string `json:"resources"`
	// Boot is that of the machine in which plugins gave the responses; empty in checkpoints of
	// versions that did not save it.
	Boot string `json:"boot,omitempty"`
	// Unreset is true if there was no checkpoint, and the Node has not been reset since.
	Unreset bool `json:"unreset,omitempty"`
}

const (
	// grace is how long the node shows a resource whose plugin has ended (kubelet's).
	grace = 5 * time.Minute
	// forgotten is the time after which such a resource is not the manager's any more, if no
	// container has devices of it: others may set it in the Node, and pods that request it get no
	// devices.
	forgotten = 2 * grace
)

// New returns a manager with the allocations of the checkpoint.
func New(o Options) (*Manager, error) {
	m := &Manager{
		o: o, file: checkpoint.File{Path: filepath.Join(o.Dir, checkpointName), Version: checkpointVersion},
		resources: map[string]*offer{}, allocated: map[types.UID]map[string]map[string]*allocation{},
	}
	if err := os.MkdirAll(o.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("making the directory of device plugins: %w", err)
	}
	var before saved
	found, err := m.file.Load(&before)
	if err != nil {
		return nil, err
	}
	m.unreset = !found || before.Unreset
	if before.Allocated != nil {
		m.allocated = before.Allocated
	}
	if before.Boot != "" && before.Boot != o.Boot {
		m.forgetResponses()
	}
	for _, name := range before.Resources {
		m.resources[name] = &offer{gone: o.Clock.Now()}
	}
	return m, nil
}

// forgetResponses makes plugins allocate the devices that containers have again, when these
// start: kubelet, too, does not start containers after a reboot before the plugins have
// registered.
func (m *Manager) forgetResponses() {
	for _, containers := range m.allocated {
		for _, resources := range containers {
			for _, a := range resources {
				a.Response, a.Again = nil, a.Again || a.Response != nil
			}
		}
	}
}

// Save implements allocation.Provider.
func (m *Manager) Save() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.save()
}

func (m *Manager) save() error {
	return m.file.Save(saved{Allocated: m.allocated, Resources: slices.Sorted(maps.Keys(m.resources)), Boot: m.o.Boot, Unreset: m.unreset})
}

// Unreset reports whether there was no checkpoint: the Node may have extended resources of plugins
// that are unknown. It is to have none of them until their plugins register (kubelet's
// ShouldResetExtendedResourceCapacity).
func (m *Manager) Unreset() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unreset
}

// Reset records that the extended resources of the Node have been reset.
func (m *Manager) Reset() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unreset = false
	return m.save()
}

// update replaces the devices of a resource by those that a plugin lists. It ignores a
// plugin that another one has replaced.
func (m *Manager) update(from *plugin, list []*pluginapi.Device) {
	devices := map[string]device{}
	for _, d := range list {
		nodes := []int{}
		for _, node := range d.GetTopology().GetNodes() {
			if slices.Contains(m.o.Nodes, int(node.GetID())) {
				nodes = append(nodes, int(node.GetID()))
			}
		}
		devices[d.GetID()] = device{healthy: d.GetHealth() == pluginapi.Healthy, nodes: nodes}
	}
	m.mu.Lock()
	of := m.resources[from.resource]
	current := of != nil && of.plugin == from
	var pods []types.UID
	if current {
		before := of.devices
		of.devices = devices
		pods = m.usersOf(from.resource, func(id string) bool { return isHealthy(before, id) != isHealthy(devices, id) })
	}
	m.mu.Unlock()
	if current {
		m.o.Changed()
		m.notify(pods)
	}
}

// connected makes a plugin the one of its resource, and returns the one before it.
func (m *Manager) connected(p *plugin) (before *plugin) {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.resources[p.resource]
	if of == nil {
		of = &offer{}
		m.resources[p.resource] = of
	}
	before, of.plugin = of.plugin, p
	if err := m.save(); err != nil {
		klog.Background().Error(err, "Failed to save the resources of device plugins", "resource", p.resource)
	}
	return before
}

// ended records that a plugin has ended: its devices are not healthy.
func (m *Manager) ended(p *plugin) {
	m.mu.Lock()
	of := m.resources[p.resource]
	current := of != nil && of.plugin == p
	var pods []types.UID
	if current {
		of.plugin, of.gone = nil, m.o.Clock.Now()
		pods = m.usersOf(p.resource, func(id string) bool { return of.devices[id].healthy })
		for id, d := range of.devices {
			d.healthy = false
			of.devices[id] = d
		}
	}
	m.mu.Unlock()
	if current {
		m.o.Changed()
		m.notify(pods)
	}
}

// Resources returns what the node has of each resource of plugins, and how many of it
// are healthy. A resource whose plugin ended long ago is in removed, until it is forgotten.
func (m *Manager) Resources() (capacity, allocatable corev1.ResourceList, removed []corev1.ResourceName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgetResources()
	capacity, allocatable = corev1.ResourceList{}, corev1.ResourceList{}
	for name, of := range m.resources {
		if of.plugin == nil && m.o.Clock.Since(of.gone) > grace {
			removed = append(removed, corev1.ResourceName(name))
			continue
		}
		healthy := int64(0)
		for _, d := range of.devices {
			if d.healthy {
				healthy++
			}
		}
		capacity[corev1.ResourceName(name)] = *resource.NewQuantity(int64(len(of.devices)), resource.DecimalSI)
		allocatable[corev1.ResourceName(name)] = *resource.NewQuantity(healthy, resource.DecimalSI)
	}
	return capacity, allocatable, removed
}

// forgetResources forgets those whose plugin ended long ago. The caller holds mu.
func (m *Manager) forgetResources() {
	before := len(m.resources)
	maps.DeleteFunc(m.resources, func(name string, of *offer) bool {
		return of.plugin == nil && m.o.Clock.Since(of.gone) > forgotten && len(m.usersOf(name, func(string) bool { return true })) == 0
	})
	if len(m.resources) == before {
		return
	}
	if err := m.save(); err != nil {
		klog.Background().Error(err, "Failed to save the resources of device plugins")
	}
}

// Device is a device for the pod resources API.
type Device struct {
	Resource string
	IDs      []string
	Nodes    []int
}

// Of returns the devices of a container.
func (m *Manager) Of(uid types.UID, container string) []Device {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Device
	for name, a := range m.allocated[uid][container] {
		all = append(all, m.grouped(name, a.IDs)...)
	}
	slices.SortFunc(all, compare)
	return all
}

// All returns all healthy devices of the node.
func (m *Manager) All() []Device {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Device
	for name, of := range m.resources {
		var ids []string
		for id, d := range of.devices {
			if d.healthy {
				ids = append(ids, id)
			}
		}
		all = append(all, m.grouped(name, ids)...)
	}
	slices.SortFunc(all, compare)
	return all
}

func compare(a, b Device) int {
	return cmp.Or(cmp.Compare(a.Resource, b.Resource), slices.Compare(a.Nodes, b.Nodes))
}

// grouped returns devices of one resource, grouped by their NUMA nodes.
func (m *Manager) grouped(name string, ids []string) []Device {
	var all []Device
	for _, id := range slices.Sorted(slices.Values(ids)) {
		var nodes []int
		if of := m.resources[name]; of != nil {
			nodes = of.devices[id].nodes
		}
		i := slices.IndexFunc(all, func(d Device) bool { return slices.Equal(d.Nodes, nodes) })
		if i < 0 {
			all = append(all, Device{Resource: name, Nodes: nodes})
			i = len(all) - 1
		}
		all[i].IDs = append(all[i].IDs, id)
	}
	return all
}

// pluginOf returns the connected plugin of a resource, nil if there is none.
func (m *Manager) pluginOf(name string) *plugin {
	m.mu.Lock()
	defer m.mu.Unlock()
	if of := m.resources[name]; of != nil {
		return of.plugin
	}
	return nil
}
