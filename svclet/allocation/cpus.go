package allocation

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"

	"svc.dev/svc/svclet/checkpoint"
	"svc.dev/svc/svclet/cpus"
	"svc.dev/svc/svclet/topology"
)

// cpuProvider allocates exclusive CPUs.
type cpuProvider struct {
	*cpus.Static
	file    checkpoint.File
	metrics Metrics
}

// Allocate implements Provider.
func (c cpuProvider) Allocate(p *corev1.Pod, container *corev1.Container, nodes topology.Mask) error {
	err := c.Static.Allocate(p, container, nodes)
	if cpus.Requested(p, container) > 0 {
		c.metrics.CPUsPinned(err)
	}
	return err
}

// Hints implements Provider.
func (c cpuProvider) Hints(p *corev1.Pod, container *corev1.Container) topology.Hints {
	return ofCPUs(c.Static.Hints(p, container))
}

// PodHints implements Provider.
func (c cpuProvider) PodHints(p *corev1.Pod) topology.Hints { return ofCPUs(c.Static.PodHints(p)) }

func ofCPUs(hints []topology.Hint) topology.Hints {
	if hints == nil {
		return nil
	}
	return topology.Hints{string(corev1.ResourceCPU): hints}
}

// Pods implements Provider.
func (c cpuProvider) Pods() []types.UID {
	var all []types.UID
	for uid := range c.Exclusive {
		all = append(all, uid)
	}
	return all
}

// cpuState is the checkpoint of CPUs. Sets are in the kernel's form, "0-3,8".
type cpuState struct {
	Exclusive map[types.UID]map[string]string `json:"exclusive"`
	Reusable  map[types.UID]string            `json:"reusable,omitempty"`
}

// Save implements Provider.
func (c cpuProvider) Save() error {
	saved := cpuState{Exclusive: map[types.UID]map[string]string{}, Reusable: map[types.UID]string{}}
	for uid, containers := range c.Exclusive {
		saved.Exclusive[uid] = map[string]string{}
		for name, set := range containers {
			saved.Exclusive[uid][name] = set.String()
		}
	}
	for uid, set := range c.Reusable {
		saved.Reusable[uid] = set.String()
	}
	return c.file.Save(saved)
}

// state returns the state that a checkpoint has.
func (s cpuState) state() (cpus.State, error) {
	state := cpus.State{Exclusive: map[types.UID]map[string]cpuset.CPUSet{}, Reusable: map[types.UID]cpuset.CPUSet{}}
	for uid, containers := range s.Exclusive {
		state.Exclusive[uid] = map[string]cpuset.CPUSet{}
		for name, text := range containers {
			set, err := cpuset.Parse(text)
			if err != nil {
				return state, fmt.Errorf("container %s of pod %s: %w", name, uid, err)
			}
			state.Exclusive[uid][name] = set
		}
	}
	for uid, text := range s.Reusable {
		set, err := cpuset.Parse(text)
		if err != nil {
			return state, fmt.Errorf("pod %s: %w", uid, err)
		}
		state.Reusable[uid] = set
	}
	return state, nil
}

// CPUs returns the list of CPUs that a container may use, empty for all.
func (m *Manager) CPUs(uid types.UID, container string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.o.CPUs == nil {
		return ""
	}
	set, _ := m.o.CPUs.CPUs(uid, container)
	return set.String()
}

// Exclusive returns the CPUs that a container has alone.
func (m *Manager) Exclusive(uid types.UID, container string) []int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.o.CPUs == nil {
		return nil
	}
	set, exclusive := m.o.CPUs.CPUs(uid, container)
	if !exclusive {
		return nil
	}
	return numbers(set)
}

// HasExclusiveCPUs reports whether a container has CPUs alone.
func (m *Manager) HasExclusiveCPUs(uid types.UID, container string) bool {
	return len(m.Exclusive(uid, container)) > 0
}

// PodHasExclusiveCPUs reports whether a container of a pod has CPUs alone.
func (m *Manager) PodHasExclusiveCPUs(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.o.CPUs != nil && len(m.o.CPUs.Exclusive[uid]) > 0
}

// AllocatableCPUs returns the CPUs that containers can have alone.
func (m *Manager) AllocatableCPUs() []int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.o.CPUs == nil {
		return nil
	}
	return numbers(m.o.CPUs.Allocatable())
}

func numbers(set cpuset.CPUSet) []int64 {
	var all []int64
	for _, cpu := range set.List() {
		all = append(all, int64(cpu))
	}
	return all
}

// reconcileSoon makes Run reconcile without waiting for its period.
func (m *Manager) reconcileSoon() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// Run keeps the CPUs of running containers as they are allocated, until ctx is done.
func (m *Manager) Run(ctx context.Context) {
	if m.o.CPUs == nil {
		return
	}
	set := map[string]string{} // CPUs by the ID of a container
	for {
		set = m.reconcile(ctx, set)
		select {
		case <-ctx.Done():
			return
		case <-m.changed:
		case <-m.o.Clock.After(m.o.Period):
		}
	}
}

// reconcile updates the running containers whose CPUs are not those in before, and
// returns what all have now.
func (m *Manager) reconcile(ctx context.Context, before map[string]string) map[string]string {
	now := map[string]string{}
	for _, c := range m.o.Running() {
		wanted := m.CPUs(c.Pod, c.Name)
		if before[c.ID] != wanted {
			err := m.o.Runtime.UpdateResources(ctx, c.ID, &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: wanted}})
			if err != nil {
				klog.FromContext(ctx).V(2).Info("Failed to update the CPUs of container, will retry", "container", c.Name, "podUID", c.Pod, "cpus", wanted, "err", err)
				continue
			}
		}
		now[c.ID] = wanted
	}
	return now
}
