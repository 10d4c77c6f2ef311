package allocation

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/svclet/checkpoint"
	"svc.dev/svc/svclet/memory"
	"svc.dev/svc/svclet/topology"
)

// The checkpoint of memory.
const (
	memoryCheckpoint        = "memory_manager_state"
	memoryCheckpointVersion = 1
)

// memoryProvider allocates memory of NUMA nodes.
type memoryProvider struct {
	*memory.Static
	file checkpoint.File
}

// memoryBlock is what a container has, in the checkpoint.
type memoryBlock struct {
	Nodes   []int          `json:"nodes"`
	Init    bool           `json:"init,omitempty"`
	Amounts memory.Amounts `json:"amounts"`
}

// Save implements Provider.
func (m memoryProvider) Save() error {
	saved := map[types.UID]map[string]memoryBlock{}
	for uid, containers := range m.State {
		saved[uid] = map[string]memoryBlock{}
		for name, block := range containers {
			saved[uid][name] = memoryBlock{Nodes: block.Nodes.Nodes(), Init: block.Init, Amounts: block.Amounts}
		}
	}
	return m.file.Save(saved)
}

// loadMemory returns the provider of memory, with the allocations of the checkpoint in a
// directory; nil without a policy.
func loadMemory(static *memory.Static, dir string) (Provider, error) {
	file := checkpoint.File{Path: filepath.Join(dir, memoryCheckpoint), Version: memoryCheckpointVersion}
	var saved map[types.UID]map[string]memoryBlock
	found, err := file.Load(&saved)
	switch {
	case err != nil:
		return nil, err
	case static == nil && found:
		return nil, file.Unusable("it is of --memory-manager-policy=Static, and the policy is None")
	case static == nil:
		return nil, nil
	}
	state := memory.State{}
	for uid, containers := range saved {
		state[uid] = map[string]memory.Block{}
		for name, block := range containers {
			if slices.ContainsFunc(block.Nodes, func(node int) bool { return node < 0 || node >= topology.MaxNodes }) {
				return nil, file.Unusable(fmt.Sprintf("container %s of pod %s has the NUMA nodes %v", name, uid, block.Nodes))
			}
			state[uid][name] = memory.Block{Nodes: topology.NewMask(block.Nodes...), Init: block.Init, Amounts: block.Amounts}
		}
	}
	if err := static.Restore(state); err != nil {
		return nil, file.Unusable(err.Error())
	}
	own := memoryProvider{Static: static, file: file}
	return own, own.Save()
}

// Memory is memory of some NUMA nodes: of a container, or all that containers can have.
type Memory struct {
	Nodes []int
	Kind  corev1.ResourceName
	Bytes int64
}

// MemoryNodes returns the list of NUMA nodes whose memory a container uses, empty for all.
func (m *Manager) MemoryNodes(uid types.UID, container string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.o.Memory == nil {
		return ""
	}
	return m.o.Memory.Nodes(uid, container).String()
}

// Memory returns the memory that a container has alone.
func (m *Manager) Memory(uid types.UID, container string) []Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.o.Memory == nil {
		return nil
	}
	block := m.o.Memory.State[uid][container]
	return ofNodes(block.Nodes.Nodes(), block.Amounts)
}

// AllocatableMemory returns the memory that containers can have alone.
func (m *Manager) AllocatableMemory() []Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.o.Memory == nil {
		return nil
	}
	var all []Memory
	for _, node := range slices.Sorted(maps.Keys(m.o.Memory.Allocatable())) {
		all = append(all, ofNodes([]int{node}, m.o.Memory.Allocatable()[node])...)
	}
	return all
}

func ofNodes(nodes []int, amounts memory.Amounts) []Memory {
	var all []Memory
	for _, kind := range slices.Sorted(maps.Keys(amounts)) {
		all = append(all, Memory{Nodes: nodes, Kind: kind, Bytes: amounts[kind]})
	}
	return all
}
