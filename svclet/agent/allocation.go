package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/svclet/allocation"
	"svc.dev/svc/svclet/claims"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/container"
	"svc.dev/svc/svclet/cpus"
	"svc.dev/svc/svclet/devices"
	"svc.dev/svc/svclet/executor"
	"svc.dev/svc/svclet/memory"
	"svc.dev/svc/svclet/node"
	"svc.dev/svc/svclet/podmanager"
	"svc.dev/svc/svclet/podresources"
	"svc.dev/svc/svclet/topology"
)

// newAllocations makes what allocates resources to single containers.
func newAllocations(base common, conn connections, available resources, held *devices.Manager, prepared preparedClaims, table *podmanager.Table) (*allocation.Manager, tasks, error) {
	c := base.Configuration
	machine, err := topology.Read("/")
	if err != nil {
		return nil, tasks{}, fmt.Errorf("reading the topology of the machine: %w", err)
	}
	closest, err := topology.ParseOptions(c.TopologyManagerPolicyOptions, true)
	if err != nil {
		return nil, tasks{}, fmt.Errorf("--topology-manager-policy-options: %w", err)
	}
	o := allocation.Options{
		Merger: topology.Merger{Policy: topology.Policy(c.TopologyManagerPolicy), Nodes: machine.Nodes(), Closest: closest, Distance: machine.Distance},
		PerPod: c.TopologyManagerScope == config.TopologyScopePod,
		Dir:    base.RootDir, Providers: []allocation.Provider{held}, Runtime: conn.runtime, Running: table.Running,
		Period: c.CPUManagerReconcilePeriod.Duration, Metrics: base.metrics, Clock: base.Clock,
	}
	if nodes := len(o.Merger.Nodes); o.Merger.Policy != topology.None && nodes > maxAlignedNodes {
		return nil, tasks{}, fmt.Errorf("--topology-manager-policy=%s: the machine has %d NUMA nodes: must be none above %d", o.Merger.Policy, nodes, maxAlignedNodes)
	}
	if c.CPUManagerPolicy == config.CPUManagerStatic {
		if o.CPUs, err = staticCPUs(c, available, machine); err != nil {
			return nil, tasks{}, err
		}
	}
	if c.MemoryManagerPolicy == config.MemoryManagerStatic {
		if o.Memory, err = staticMemory(base, available, machine); err != nil {
			return nil, tasks{}, err
		}
	}
	m, err := allocation.New(o)
	if err != nil {
		return nil, tasks{}, err
	}
	resources := podresources.Options{
		Dir: filepath.Join(base.RootDir, "pod-resources"), Active: table.Active, CPUs: m, Memory: m, Devices: held, WithoutGet: base.WithoutPodResourcesGet,
	}
	if prepared.manager != nil && base.ClaimResources {
		resources.Claims = prepared.manager
	}
	shown := podresources.New(resources)
	return m, tasks{parts: []func(context.Context){m.Run, held.Run, shown.Run}}, nil
}

// maxAlignedNodes is how many NUMA nodes a machine may have for hints, whose number grows
// exponentially (kubelet's limit).
const maxAlignedNodes = 8

func staticCPUs(c *config.Configuration, available resources, machine *topology.Topology) (*cpus.Static, error) {
	options, err := cpus.ParseOptions(c.CPUManagerPolicyOptions, true, true)
	if err != nil {
		return nil, fmt.Errorf("--cpu-manager-policy-options: %w", err)
	}
	reserved, err := cpuset.Parse(c.ReservedSystemCPUs)
	if err != nil {
		return nil, fmt.Errorf("--reserved-cpus: %w", err)
	}
	total := available.reserved.Total()[corev1.ResourceCPU]
	return cpus.NewStatic(machine, options, reserved, int((total.MilliValue()+999)/1000))
}

// staticMemory makes the policy by which containers have memory of NUMA nodes of their own.
func staticMemory(base common, available resources, machine *topology.Topology) (*memory.Static, error) {
	if nodes := len(machine.Nodes()); nodes > maxAlignedNodes {
		return nil, fmt.Errorf("--memory-manager-policy=Static: the machine has %d NUMA nodes: must be None above %d", nodes, maxAlignedNodes)
	}
	perNode := map[int]memory.Amounts{}
	for _, r := range base.Configuration.ReservedMemory {
		node := int(r.NumaNode)
		if perNode[node] == nil {
			perNode[node] = memory.Amounts{}
		}
		for name, q := range r.Limits {
			perNode[node][name] += q.Value()
		}
	}
	total := reserved(base, available)[corev1.ResourceMemory]
	static, err := memory.NewStatic(machine, perNode, total.Value())
	if err != nil {
		return nil, fmt.Errorf("--reserved-memory: %w", err)
	}
	return static, nil
}

// newDevices makes what knows the devices of the node.
func newDevices(base common, queue *podmanager.Queue, n func() *node.Node) (*devices.Manager, error) {
	machine, err := topology.Read("/")
	if err != nil {
		return nil, fmt.Errorf("reading the topology of the machine: %w", err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("the ID of the machine's boot: %w", err)
	}
	return devices.New(devices.Options{
		Dir: filepath.Join(base.RootDir, "device-plugins"), Nodes: machine.Nodes(), Boot: strings.TrimSpace(string(boot)), WithoutCDI: base.WithoutCDIDevices,
		Changed: func() { n().Changed() }, HealthChanged: queue.HealthChanged, Registered: base.metrics.DevicePluginRegistered, Allocated: base.metrics.DevicesAllocated, Clock: base.Clock,
	})
}

// allocated returns what a container has of the node alone.
func allocated(m *allocation.Manager, d *devices.Manager, prepared *claims.Manager) func(context.Context, *corev1.Pod, *corev1.Container) (container.Allocation, error) {
	return func(ctx context.Context, p *corev1.Pod, c *corev1.Container) (container.Allocation, error) {
		all, err := d.Start(ctx, p.UID, c.Name)
		if err != nil {
			return all, err
		}
		all.CPUs, all.Memory = m.CPUs(p.UID, c.Name), m.MemoryNodes(p.UID, c.Name)
		if prepared == nil {
			return all, nil
		}
		names, err := prepared.CDIDevices(p, c)
		for _, name := range names {
			all.CDIDevices = append(all.CDIDevices, &runtimeapi.CDIDevice{Name: name})
		}
		return all, err
	}
}

// deviceHealth is the health of the devices of containers, of plugins and of claims.
type deviceHealth struct {
	devices *devices.Manager
	claims  *claims.Manager // nil without resource claims
}

// Of implements podworker.Health.
func (d deviceHealth) Of(p *corev1.Pod, name string) []corev1.ResourceStatus {
	all := d.devices.Health(p.UID, name)
	if _, c := podspec.Find(&p.Spec, name); c != nil && d.claims != nil {
		all = append(all, d.claims.Health(p, c)...)
	}
	return all
}

// preparedClaims are the resource claims of pods; all of it is nil while no pod may have one.
type preparedClaims struct {
	manager *claims.Manager
	claims  interface {
		executor.Claims
		Pods() []types.UID
	}
	tasks tasks
}

// newClaims makes what lets drivers prepare the resource claims of pods.
func newClaims(base common, conn connections, queue *podmanager.Queue) (preparedClaims, error) {
	if !base.Claims {
		return preparedClaims{}, nil
	}
	o := claims.Options{Dir: base.RootDir, HealthChanged: queue.HealthChanged, Clock: base.Clock}
	if conn.clients != nil {
		o.Get = conn.clients.ResourceClaim
		o.DeleteSlices = func(ctx context.Context, driver string) error {
			return conn.clients.DeleteResourceSlices(ctx, base.name, driver)
		}
	}
	m, err := claims.New(o)
	if err != nil {
		return preparedClaims{}, err
	}
	return preparedClaims{manager: m, claims: m, tasks: tasks{parts: []func(context.Context){m.Run}}}, nil
}
