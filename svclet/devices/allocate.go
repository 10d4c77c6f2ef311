package devices

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/svclet/topology"
)

// requests returns how many devices of each known resource a container needs, but for those
// that it has from a resource claim.
func (m *Manager) requests(p *corev1.Pod, c *corev1.Container) map[string]int {
	needed := map[string]int{}
	for name, amount := range c.Resources.Limits {
		if m.resources[string(name)] != nil && amount.Value() > 0 && !podspec.IsClaimed(p, c.Name, name) {
			needed[string(name)] = int(amount.Value())
		}
	}
	return needed
}

// Hints implements allocation.Provider. A resource whose devices have no NUMA node has no
// preference.
func (m *Manager) Hints(p *corev1.Pod, c *corev1.Container) topology.Hints {
	m.mu.Lock()
	defer m.mu.Unlock()
	hints := topology.Hints{}
	for name, count := range m.requests(p, c) {
		if held := m.allocated[p.UID][c.Name][name]; held != nil {
			if hints[name] = []topology.Hint{}; len(held.IDs) == count {
				hints[name] = m.hints(name, held.IDs, nil, count)
			}
			continue
		}
		free := m.free(p, name)
		hints[name] = m.hints(name, free, m.reused(p, name, free), count)
	}
	return hints
}

// PodHints implements allocation.Provider.
func (m *Manager) PodHints(p *corev1.Pod) topology.Hints {
	m.mu.Lock()
	defer m.mu.Unlock()
	together, most := map[string]int{}, map[string]int{}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		for name, count := range m.requests(p, c) {
			most[name] = max(most[name], together[name]+count)
			if isSidecar(c) {
				together[name] += count
			}
		}
	}
	for i := range p.Spec.Containers {
		for name, count := range m.requests(p, &p.Spec.Containers[i]) {
			together[name] += count
		}
	}
	hints := topology.Hints{}
	maps.Copy(most, maximum(most, together))
	for name, count := range most {
		available := m.free(p, name)
		for _, own := range m.allocated[p.UID] {
			if own[name] != nil {
				available = append(available, own[name].IDs...)
			}
		}
		slices.Sort(available)
		hints[name] = m.hints(name, slices.Compact(available), nil, count)
	}
	return hints
}

func maximum(a, b map[string]int) map[string]int {
	all := maps.Clone(a)
	for name, count := range b {
		all[name] = max(all[name], count)
	}
	return all
}

func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// hints returns the sets of NUMA nodes that have count of the available devices, and all reused
// ones that have a node.
func (m *Manager) hints(name string, available, reused []string, count int) []topology.Hint {
	devices := m.resources[name].devices
	aligned := false
	for _, d := range devices {
		aligned = aligned || len(d.nodes) > 0
	}
	if !aligned {
		return nil
	}
	has := func(nodes topology.Mask, id string) bool {
		return slices.ContainsFunc(devices[id].nodes, nodes.Has)
	}
	hints := []topology.Hint{}
	smallest := len(m.o.Nodes)
	for nodes := range topology.Subsets(m.o.Nodes) {
		all, matching := 0, 0
		for id := range devices {
			if has(nodes, id) {
				all++
			}
		}
		for _, id := range available {
			if has(nodes, id) {
				matching++
			}
		}
		if all >= count {
			smallest = min(smallest, nodes.Count())
		}
		lacks := func(id string) bool { return len(devices[id].nodes) > 0 && !has(nodes, id) }
		if matching >= count && !slices.ContainsFunc(reused, lacks) {
			hints = append(hints, topology.Hint{Nodes: nodes})
		}
	}
	for i := range hints {
		hints[i].Preferred = hints[i].Nodes.Count() == smallest
	}
	return hints
}

// free returns the healthy devices that no other pod has, and no container of this one
// that runs at the same time as its later ones.
func (m *Manager) free(p *corev1.Pod, name string) []string {
	taken := map[string]bool{}
	for uid, containers := range m.allocated {
		for container, resources := range containers {
			if resources[name] == nil || uid == p.UID && endsBeforeOthers(p, container) {
				continue
			}
			for _, id := range resources[name].IDs {
				taken[id] = true
			}
		}
	}
	var free []string
	for id, d := range m.resources[name].devices {
		if d.healthy && !taken[id] {
			free = append(free, id)
		}
	}
	slices.Sort(free)
	return free
}

// reused returns those of the free devices that an init container of the pod has.
func (m *Manager) reused(p *corev1.Pod, name string, free []string) []string {
	var all []string
	for _, id := range free {
		for container, resources := range m.allocated[p.UID] {
			if endsBeforeOthers(p, container) && resources[name] != nil && slices.Contains(resources[name].IDs, id) {
				all = append(all, id)
				break
			}
		}
	}
	return all
}

// endsBeforeOthers reports whether a container is an init container that is no sidecar.
func endsBeforeOthers(p *corev1.Pod, name string) bool {
	return slices.ContainsFunc(p.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name && !isSidecar(&c) })
}

// Allocate implements allocation.Provider. It chooses devices and calls no plugin: that
// is done when the container starts.
func (m *Manager) Allocate(p *corev1.Pod, c *corev1.Container, nodes topology.Mask) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	needed := m.requests(p, c)
	for _, name := range slices.Sorted(maps.Keys(needed)) {
		if m.allocated[p.UID][c.Name][name] != nil {
			continue
		}
		free := m.free(p, name)
		if len(free) < needed[name] {
			return fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d", name, needed[name], len(free))
		}
		if m.allocated[p.UID] == nil {
			m.allocated[p.UID] = map[string]map[string]*allocation{}
		}
		if m.allocated[p.UID][c.Name] == nil {
			m.allocated[p.UID][c.Name] = map[string]*allocation{}
		}
		m.allocated[p.UID][c.Name][name] = m.choose(p, name, free, nodes, needed[name])
	}
	return nil
}

// choose chooses count of the free devices: those that an init container of the pod had come
// first, then those of the wanted NUMA nodes. The plugin may prefer others of the wanted nodes or,
// if the container gets all free ones of these, others of the rest (devicesToAllocate of kubelet's
// device manager).
func (m *Manager) choose(p *corev1.Pod, name string, free []string, nodes topology.Mask, count int) *allocation {
	isAligned := func(id string) bool { return slices.ContainsFunc(m.resources[name].devices[id].nodes, nodes.Has) }
	reused := m.reused(p, name, free)
	var aligned, others []string
	for _, id := range free {
		switch {
		case slices.Contains(reused, id):
		case nodes != 0 && isAligned(id):
			aligned = append(aligned, id)
		default:
			others = append(others, id)
		}
	}
	a := &allocation{IDs: slices.Concat(reused, aligned, others)[:count], Must: reused, Nodes: nodes}
	if count-len(reused) >= len(aligned) {
		a.Must, a.Nodes = slices.Concat(reused, aligned), 0
	}
	a.IDs, a.Must = slices.Clone(a.IDs), slices.Clone(a.Must[:min(len(a.Must), count)])
	return a
}

// Release implements allocation.Provider.
func (m *Manager) Release(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.allocated, uid)
}

// Pods implements allocation.Provider.
func (m *Manager) Pods() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.allocated))
}
