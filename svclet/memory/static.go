// Package memory owns the assignment of memory of NUMA nodes to containers: the Static
// policy of the memory manager. Its decisions are pure.
package memory

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/svclet/topology"
)

// Amounts are bytes of memory and of huge pages.
type Amounts map[corev1.ResourceName]int64

// Block is what one container has: amounts of the memory of a group of NUMA nodes.
type Block struct {
	Nodes topology.Mask
	// Init reports that the container is an init container, whose memory the later
	// containers of its pod get.
	Init    bool
	Amounts Amounts
}

// State is what all containers have.
type State map[types.UID]map[string]Block

// Static gives containers of guaranteed pods memory of as few NUMA nodes as possible. A
// node belongs to one group at a time: containers whose memory is of the node alone, or
// those whose memory is of the same several nodes.
type Static struct {
	State
	nodes []int
	// allocatable is what containers can have of each node.
	allocatable map[int]Amounts
}

// NewStatic returns the policy. reserved is what containers do not get of each node;
// total is the memory that the node keeps from pods, which reserved must add up to.
func NewStatic(t *topology.Topology, reserved map[int]Amounts, total int64) (*Static, error) {
	s := &Static{State: State{}, nodes: t.Nodes(), allocatable: map[int]Amounts{}}
	for node, m := range t.Memory {
		amounts := Amounts{corev1.ResourceMemory: m.Total}
		for size, bytes := range m.HugePages {
			amounts[hugePages(size)] = bytes
			amounts[corev1.ResourceMemory] -= bytes // they are not memory for others
		}
		s.allocatable[node] = amounts
	}
	var sum int64
	for _, node := range slices.Sorted(maps.Keys(reserved)) {
		amounts := reserved[node]
		has, known := s.allocatable[node]
		if !known {
			return nil, fmt.Errorf("the machine has no NUMA node %d", node)
		}
		for name, bytes := range amounts {
			if has[name] < bytes {
				return nil, fmt.Errorf("NUMA node %d has %d bytes of %s: fewer than %d", node, has[name], name, bytes)
			}
			has[name] -= bytes
		}
		sum += amounts[corev1.ResourceMemory]
	}
	if sum != total {
		return nil, fmt.Errorf("memory of all NUMA nodes is %s: must be %s, what the node keeps from pods (--svc-reserved, --system-reserved and memory.available of --eviction-hard)",
			resource.NewQuantity(sum, resource.BinarySI), resource.NewQuantity(total, resource.BinarySI))
	}
	return s, nil
}

func hugePages(size int64) corev1.ResourceName {
	return corev1.ResourceName(corev1.ResourceHugePagesPrefix + resource.NewQuantity(size, resource.BinarySI).String())
}

// Restore sets the state of an earlier process. It returns an error if the machine does
// not have its memory any more.
func (s *Static) Restore(state State) error {
	before := s.State
	s.State = state
	for _, uid := range slices.Sorted(maps.Keys(state)) {
		for _, name := range slices.Sorted(maps.Keys(state[uid])) {
			block := state[uid][name]
			if block.Nodes == 0 || block.Nodes&^topology.NewMask(s.nodes...) != 0 {
				s.State = before
				return fmt.Errorf("the machine does not have NUMA nodes %s of container %s of pod %s", block.Nodes, name, uid)
			}
			for _, resource := range slices.Sorted(maps.Keys(block.Amounts)) {
				if s.free(block.Nodes, resource, "") < 0 {
					s.State = before
					return fmt.Errorf("NUMA nodes %s have too little %s: container %s of pod %s has %d bytes of it", block.Nodes, resource, name, uid, block.Amounts[resource])
				}
			}
		}
	}
	if s.State == nil {
		s.State = State{}
	}
	return nil
}

// Requested returns what a container gets; nil if it shares the memory of all nodes, as it
// does in a pod with resources of its own (KEP-2837).
func Requested(p *corev1.Pod, c *corev1.Container) Amounts {
	if resourcehelper.IsPodLevelResourcesSet(p) || podspec.QOSClassOf(p) != corev1.PodQOSGuaranteed {
		return nil
	}
	amounts := Amounts{}
	for name, q := range c.Resources.Requests {
		if name == corev1.ResourceMemory || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			amounts[name] = q.Value()
		}
	}
	return amounts
}

// PodRequested returns what the containers of a pod have at the same time.
func PodRequested(p *corev1.Pod) Amounts {
	started, most := Amounts{}, Amounts{}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		for name, bytes := range Requested(p, c) {
			most[name] = max(most[name], started[name]+bytes)
			if podspec.IsSidecar(podspec.InitContainers, c) {
				started[name] += bytes
			}
		}
	}
	for i := range p.Spec.Containers {
		for name, bytes := range Requested(p, &p.Spec.Containers[i]) {
			started[name] += bytes
		}
	}
	for name, bytes := range started {
		most[name] = max(most[name], bytes)
	}
	return most
}

// used returns how much of a group of nodes a pod uses: its init containers do not run
// beside the others.
func used(containers map[string]Block, nodes topology.Mask, name corev1.ResourceName) int64 {
	var before, beside int64
	for _, block := range containers {
		switch {
		case block.Nodes != nodes:
		case block.Init:
			before = max(before, block.Amounts[name])
		default:
			beside += block.Amounts[name]
		}
	}
	return max(before, beside)
}

// free returns how much of a group of nodes a container of the pod can still get.
func (s *Static) free(nodes topology.Mask, name corev1.ResourceName, pod types.UID) int64 {
	var free int64
	for _, node := range nodes.Nodes() {
		free += s.allocatable[node][name]
	}
	for uid, containers := range s.State {
		if uid != pod {
			free -= used(containers, nodes, name)
			continue
		}
		for _, block := range containers { // what init containers had is free again
			if block.Nodes == nodes && !block.Init {
				free -= block.Amounts[name]
			}
		}
	}
	return free
}

// allowed reports whether containers can have memory of exactly this group of nodes: no
// other group has one of its nodes.
func (s *Static) allowed(nodes topology.Mask) bool {
	for _, containers := range s.State {
		for _, block := range containers {
			if block.Nodes != nodes && block.Nodes&nodes != 0 {
				return false
			}
		}
	}
	return true
}

// satisfies reports whether a group of nodes has what is requested.
func (s *Static) satisfies(nodes topology.Mask, wanted Amounts, pod types.UID) bool {
	for name, bytes := range wanted {
		if s.free(nodes, name, pod) < bytes {
			return false
		}
	}
	return true
}

// hints returns the groups of nodes from which a container of the pod can have what is
// wanted. Those of as few nodes as could ever have it are preferred.
func (s *Static) hints(wanted Amounts, pod types.UID) []topology.Hint {
	hints, smallest := []topology.Hint{}, len(s.nodes)
	for nodes := range topology.Subsets(s.nodes) {
		if !s.couldEver(nodes, wanted) {
			continue
		}
		smallest = min(smallest, nodes.Count())
		if s.allowed(nodes) && s.satisfies(nodes, wanted, pod) {
			hints = append(hints, topology.Hint{Nodes: nodes})
		}
	}
	for i := range hints {
		hints[i].Preferred = hints[i].Nodes.Count() == smallest
	}
	return hints
}

// couldEver reports whether a group of nodes would have what is wanted if it were unused.
func (s *Static) couldEver(nodes topology.Mask, wanted Amounts) bool {
	for name, bytes := range wanted {
		var all int64
		for _, node := range nodes.Nodes() {
			all += s.allocatable[node][name]
		}
		if all < bytes {
			return false
		}
	}
	return true
}

// Hints returns the groups of nodes that can give a container each of its resources; nil
// if it needs none of its own.
func (s *Static) Hints(p *corev1.Pod, c *corev1.Container) topology.Hints {
	wanted := Requested(p, c)
	if block, has := s.State[p.UID][c.Name]; has {
		return each(wanted, []topology.Hint{{Nodes: block.Nodes, Preferred: true}})
	}
	return each(wanted, s.hints(wanted, p.UID))
}

// PodHints is Hints for all containers of a pod.
func (s *Static) PodHints(p *corev1.Pod) topology.Hints {
	wanted := PodRequested(p)
	for _, block := range s.State[p.UID] {
		return each(wanted, []topology.Hint{{Nodes: block.Nodes, Preferred: true}})
	}
	return each(wanted, s.hints(wanted, p.UID))
}

func each(wanted Amounts, hints []topology.Hint) topology.Hints {
	if len(wanted) == 0 {
		return nil
	}
	all := topology.Hints{}
	for name := range wanted {
		all[string(name)] = hints
	}
	return all
}

// Allocate gives a container of a pod its memory: of these nodes, or of more if they do
// not have as much; without nodes, of those that are best. It does nothing for a container
// that has it, or needs none. Its errors are kubelet's.
func (s *Static) Allocate(p *corev1.Pod, c *corev1.Container, nodes topology.Mask) error {
	wanted := Requested(p, c)
	if _, has := s.State[p.UID][c.Name]; has || len(wanted) == 0 {
		return nil
	}
	if nodes == 0 || !s.allowed(nodes) || !s.satisfies(nodes, wanted, p.UID) {
		best, err := widest(s.hints(wanted, p.UID), nodes)
		if err != nil {
			return err
		}
		nodes = best
	}
	if s.State[p.UID] == nil {
		s.State[p.UID] = map[string]Block{}
	}
	init := slices.ContainsFunc(p.Spec.InitContainers, func(i corev1.Container) bool {
		return i.Name == c.Name && !podspec.IsSidecar(podspec.InitContainers, &i)
	})
	s.State[p.UID][c.Name] = Block{Nodes: nodes, Init: init, Amounts: wanted}
	return nil
}

// widest returns the best hint that includes nodes.
func widest(hints []topology.Hint, nodes topology.Mask) (topology.Mask, error) {
	var best topology.Hint
	for _, h := range hints {
		if h.Nodes&nodes == nodes && (best.Nodes == 0 || h.Preferred && !best.Preferred || h.Preferred == best.Preferred && h.Nodes.Narrower(best.Nodes)) {
			best = h
		}
	}
	switch {
	case best.Nodes != 0:
		return best.Nodes, nil
	case nodes == 0:
		return 0, errors.New("[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available")
	default:
		return 0, fmt.Errorf("[memorymanager] failed to find NUMA nodes to extend the current topology hint: NUMA nodes %s", nodes)
	}
}

// Nodes returns the NUMA nodes that the memory of a container is of; 0 for all.
func (s *Static) Nodes(uid types.UID, container string) topology.Mask {
	return s.State[uid][container].Nodes
}

// Allocatable returns what containers can have of each NUMA node.
func (s *Static) Allocatable() map[int]Amounts { return s.allocatable }

// Release frees the memory of a pod.
func (s *Static) Release(uid types.UID) { delete(s.State, uid) }

// Pods returns the pods that have memory of their own.
func (s *Static) Pods() []types.UID {
	var all []types.UID
	for uid := range s.State {
		all = append(all, uid)
	}
	return all
}
