// Package cpus owns the assignment of CPUs to containers: the static policy of the CPU
// manager. Its decisions are pure.
package cpus

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/cpuset"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/svclet/topology"
)

// State is which CPUs belong to which container.
type State struct {
	// Exclusive are the CPUs of single containers.
	Exclusive map[types.UID]map[string]cpuset.CPUSet
	// Reusable are CPUs of init containers that later containers of their pod get.
	Reusable map[types.UID]cpuset.CPUSet
}

// Static gives containers of guaranteed pods that request whole CPUs exclusive ones.
// All others share the rest.
type Static struct {
	State
	topology *topology.Topology
	options  Options
	reserved cpuset.CPUSet
}

// NewStatic returns the policy. Reserved CPUs are never exclusive; if their list is
// empty, count are chosen.
func NewStatic(t *topology.Topology, o Options, reserved cpuset.CPUSet, count int) (*Static, error) {
	if reserved.IsEmpty() {
		if count == 0 {
			return nil, fmt.Errorf("--cpu-manager-policy=static needs reserved CPUs: set cpu in --svc-reserved or --system-reserved, or set --reserved-cpus")
		}
		var err error
		if reserved, err = pack(t, t.All(), count); err != nil {
			return nil, fmt.Errorf("--svc-reserved and --system-reserved: %d CPUs of %d: %w", count, t.All().Size(), err)
		}
	}
	if !reserved.IsSubsetOf(t.All()) {
		return nil, fmt.Errorf("--reserved-cpus: the machine has no CPUs %s", reserved.Difference(t.All()))
	}
	return &Static{
		State:    State{Exclusive: map[types.UID]map[string]cpuset.CPUSet{}, Reusable: map[types.UID]cpuset.CPUSet{}},
		topology: t, options: o, reserved: reserved,
	}, nil
}

// Restore sets the state of an earlier process. It returns an error if the machine does
// not have its CPUs any more.
func (s *Static) Restore(state State) error {
	seen := cpuset.New()
	for uid, containers := range state.Exclusive {
		for name, cpus := range containers {
			switch {
			case !cpus.IsSubsetOf(s.topology.All()):
				return fmt.Errorf("the machine does not have CPUs %s of container %s of pod %s", cpus.Difference(s.topology.All()), name, uid)
			case !cpus.Intersection(s.reserved).IsEmpty():
				return fmt.Errorf("CPUs %s of container %s of pod %s are reserved", cpus.Intersection(s.reserved), name, uid)
			}
			seen = seen.Union(cpus)
		}
	}
	s.State = state
	if s.Exclusive == nil {
		s.Exclusive = map[types.UID]map[string]cpuset.CPUSet{}
	}
	if s.Reusable == nil {
		s.Reusable = map[types.UID]cpuset.CPUSet{}
	}
	return nil
}

// Shared returns the CPUs of all containers without exclusive ones.
func (s *Static) Shared() cpuset.CPUSet {
	shared := s.topology.All()
	for _, containers := range s.Exclusive {
		for _, cpus := range containers {
			shared = shared.Difference(cpus)
		}
	}
	for _, cpus := range s.Reusable {
		shared = shared.Difference(cpus)
	}
	return shared
}

// Allocatable returns the CPUs that are not reserved.
func (s *Static) Allocatable() cpuset.CPUSet { return s.topology.All().Difference(s.reserved) }

// CPUs returns the CPUs of a container, and whether they are its own.
func (s *Static) CPUs(uid types.UID, container string) (cpus cpuset.CPUSet, exclusive bool) {
	if cpus, exclusive = s.Exclusive[uid][container]; exclusive {
		return cpus, true
	}
	return s.Shared(), false
}

// Requested returns how many exclusive CPUs a container gets: none in a pod with resources of
// its own, which its containers share (KEP-2837).
func Requested(p *corev1.Pod, c *corev1.Container) int {
	cpu := c.Resources.Requests.Cpu()
	if resourcehelper.IsPodLevelResourcesSet(p) || podspec.QOSClassOf(p) != corev1.PodQOSGuaranteed || cpu.MilliValue()%1000 != 0 {
		return 0
	}
	return int(cpu.Value())
}

// PodRequested returns how many exclusive CPUs a pod needs at the same time.
func PodRequested(p *corev1.Pod) int {
	started, most := 0, 0 // sidecars that run beside init containers
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		count := Requested(p, c)
		most = max(most, started+count)
		if isSidecar(c) {
			started += count
		}
	}
	for i := range p.Spec.Containers {
		started += Requested(p, &p.Spec.Containers[i])
	}
	return max(started, most)
}

func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// available returns the CPUs that a container of the pod may get.
func (s *Static) available(uid types.UID) cpuset.CPUSet {
	return s.Shared().Difference(s.reserved).Union(s.Reusable[uid])
}

// Hints returns the sets of NUMA nodes that can give a container its CPUs; nil if it
// needs no exclusive ones.
func (s *Static) Hints(p *corev1.Pod, c *corev1.Container) []topology.Hint {
	count := Requested(p, c)
	if count == 0 {
		return nil
	}
	if own, has := s.Exclusive[p.UID][c.Name]; has {
		if own.Size() != count {
			return []topology.Hint{}
		}
		return s.hints(own, cpuset.New(), count)
	}
	return s.hints(s.available(p.UID), s.Reusable[p.UID], count)
}

// PodHints is Hints for all containers of a pod.
func (s *Static) PodHints(p *corev1.Pod) []topology.Hint {
	count := PodRequested(p)
	if count == 0 {
		return nil
	}
	own := cpuset.New()
	for _, cpus := range s.Exclusive[p.UID] {
		own = own.Union(cpus)
	}
	return s.hints(s.available(p.UID).Union(own), own, count)
}

// hints returns the sets of nodes with count of the available CPUs, and with all of
// those that must be reused.
func (s *Static) hints(available, reusable cpuset.CPUSet, count int) []topology.Hint {
	hints := []topology.Hint{}
	smallest := len(s.topology.Nodes())
	for nodes := range topology.Subsets(s.topology.Nodes()) {
		if s.topology.In(s.topology.All(), topology.Node, nodes.Nodes()...).Size() >= count {
			smallest = min(smallest, nodes.Count())
		}
		if s.topology.In(reusable, topology.Node, nodes.Nodes()...).Size() < reusable.Size() ||
			s.topology.In(available, topology.Node, nodes.Nodes()...).Size() < count {
			continue
		}
		hints = append(hints, topology.Hint{Nodes: nodes})
	}
	for i := range hints {
		hints[i].Preferred = hints[i].Nodes.Count() == smallest || s.options.AlignBySocket && s.onFewestSockets(hints[i].Nodes, smallest)
	}
	return hints
}

// onFewestSockets reports whether nodes are on no more sockets than this many nodes
// are.
func (s *Static) onFewestSockets(nodes topology.Mask, smallest int) bool {
	perSocket := max(s.topology.Count(topology.Node)/max(s.topology.Count(topology.Socket), 1), 1)
	sockets := s.topology.Parts(s.topology.In(s.topology.All(), topology.Node, nodes.Nodes()...), topology.Socket)
	return len(sockets) <= (smallest+perSocket-1)/perSocket
}

// AlignmentError is the refusal of a request that full-pcpus-only does not allow.
type AlignmentError struct {
	Requested, PerCore, Available int
}

// Error implements error, with kubelet's words.
func (e *AlignmentError) Error() string {
	if e.Requested%e.PerCore == 0 {
		return fmt.Sprintf("SMT Alignment Error: not enough free physical CPUs: available physical CPUs = %d, requested CPUs = %d, CPUs per core = %d", e.Available, e.Requested, e.PerCore)
	}
	return fmt.Sprintf("SMT Alignment Error: requested %d cpus not multiple cpus per core = %d", e.Requested, e.PerCore)
}

// Reason is the reason of the rejected pod.
func (e *AlignmentError) Reason() string { return "SMTAlignmentError" }

// Allocate gives a container of a pod its CPUs, those of the NUMA nodes first if there
// are any. It does nothing for a container that has them, or needs none.
func (s *Static) Allocate(p *corev1.Pod, c *corev1.Container, nodes topology.Mask) error {
	count := Requested(p, c)
	if _, has := s.Exclusive[p.UID][c.Name]; has || count == 0 {
		return nil
	}
	available := s.available(p.UID)
	if s.options.FullCores {
		perCore, whole := s.topology.ThreadsPerCore(), s.wholeCores(available)
		if count%perCore != 0 || count > whole.Size() {
			return &AlignmentError{Requested: count, PerCore: perCore, Available: whole.Size()}
		}
	}
	cpus := cpuset.New()
	if nodes != 0 {
		aligned := s.aligned(available, nodes)
		var err error
		if cpus, err = s.take(aligned, min(aligned.Size(), count)); err != nil {
			return err
		}
	}
	rest, err := s.take(available.Difference(cpus), count-cpus.Size())
	if err != nil {
		return err
	}
	cpus = cpus.Union(rest)
	if s.Exclusive[p.UID] == nil {
		s.Exclusive[p.UID] = map[string]cpuset.CPUSet{}
	}
	s.Exclusive[p.UID][c.Name] = cpus
	s.reuse(p, c, cpus)
	return nil
}

// reuse makes the CPUs of an init container available to the later containers of its
// pod, and those of others not.
func (s *Static) reuse(p *corev1.Pod, c *corev1.Container, cpus cpuset.CPUSet) {
	init := slices.ContainsFunc(p.Spec.InitContainers, func(i corev1.Container) bool { return i.Name == c.Name })
	if init && !isSidecar(c) {
		s.Reusable[p.UID] = s.Reusable[p.UID].Union(cpus)
		return
	}
	if left := s.Reusable[p.UID].Difference(cpus); left.IsEmpty() {
		delete(s.Reusable, p.UID)
	} else {
		s.Reusable[p.UID] = left
	}
}

// aligned returns the available CPUs of NUMA nodes or, with align-by-socket, of their
// sockets.
func (s *Static) aligned(available cpuset.CPUSet, nodes topology.Mask) cpuset.CPUSet {
	if !s.options.AlignBySocket {
		return s.topology.In(available, topology.Node, nodes.Nodes()...)
	}
	sockets := s.topology.Parts(s.topology.In(s.topology.All(), topology.Node, nodes.Nodes()...), topology.Socket)
	return s.topology.In(available, topology.Socket, sockets...)
}

// wholeCores returns those of the CPUs whose cores are available as a whole.
func (s *Static) wholeCores(available cpuset.CPUSet) cpuset.CPUSet {
	whole := cpuset.New()
	for _, core := range s.topology.Parts(available, topology.Core) {
		if all := s.topology.In(s.topology.All(), topology.Core, core); all.IsSubsetOf(available) {
			whole = whole.Union(all)
		}
	}
	return whole
}

func (s *Static) take(from cpuset.CPUSet, count int) (cpuset.CPUSet, error) {
	if !s.options.Distribute {
		return pack(s.topology, from, count)
	}
	group := 1
	if s.options.FullCores {
		group = s.topology.ThreadsPerCore()
	}
	return distribute(s.topology, from, count, group)
}

// Release frees the CPUs of a pod.
func (s *Static) Release(uid types.UID) {
	delete(s.Exclusive, uid)
	delete(s.Reusable, uid)
}

// Clone returns a copy of the state.
func (s State) Clone() State {
	clone := State{Exclusive: map[types.UID]map[string]cpuset.CPUSet{}, Reusable: maps.Clone(s.Reusable)}
	for uid, containers := range s.Exclusive {
		clone.Exclusive[uid] = maps.Clone(containers)
	}
	return clone
}
