package allocation

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/admit"
	"svc.dev/svc/svclet/checkpoint"
	"svc.dev/svc/svclet/cpus"
	"svc.dev/svc/svclet/memory"
	"svc.dev/svc/svclet/topology"
)

// Provider allocates resources of one kind. The manager calls it with its lock held.
type Provider interface {
	// Hints returns from which NUMA nodes a container's resources can come, PodHints
	// those of a whole pod.
	Hints(p *corev1.Pod, c *corev1.Container) topology.Hints
	PodHints(p *corev1.Pod) topology.Hints
	// Allocate allocates the resources of a container, from these nodes if there are
	// any. It does nothing if the container has them.
	Allocate(p *corev1.Pod, c *corev1.Container, nodes topology.Mask) error
	// Release frees what a pod has.
	Release(uid types.UID)
	// Pods returns the pods that have resources.
	Pods() []types.UID
	// Save writes a checkpoint.
	Save() error
}

// Container is a running container.
type Container struct {
	Pod      types.UID
	Name, ID string
}

// Runtime changes the resources of running containers.
type Runtime interface {
	UpdateResources(ctx context.Context, id string, resources *runtimeapi.ContainerResources) error
}

// Metrics record what a manager does.
type Metrics interface {
	// TopologyAdmission records an admission, and whether resources could not be aligned.
	TopologyAdmission(took time.Duration, failed bool)
	// CPUsPinned records the allocation of exclusive CPUs to a container.
	CPUsPinned(err error)
	// SharedCPUs records how many CPUs are neither reserved nor exclusive.
	SharedCPUs(count int)
}

// Options configure a manager.
type Options struct {
	Merger topology.Merger
	// PerPod aligns all containers of a pod together (--topology-manager-scope=pod).
	PerPod bool
	// CPUs is the static policy; nil for none.
	CPUs *cpus.Static
	// Memory is the Static policy; nil for None.
	Memory *memory.Static
	// Dir is the directory of checkpoints.
	Dir string
	// Providers are further resources.
	Providers []Provider
	Runtime   Runtime
	// Running returns the containers that run.
	Running func() []Container
	// Period is the longest time between two reconciliations of running containers
	// (--cpu-manager-reconcile-period).
	Period  time.Duration
	Metrics Metrics
	Clock   clock.Clock
}

// Manager allocates resources to the containers of pods when these are admitted.
type Manager struct {
	o       Options
	changed chan struct{}

	mu        sync.Mutex
	providers []Provider
}

// The checkpoint of CPUs.
const (
	cpuCheckpoint        = "cpu_manager_state"
	cpuCheckpointVersion = 1
)

// New returns a manager with the allocations of the checkpoints.
func New(o Options) (*Manager, error) {
	m := &Manager{o: o, changed: make(chan struct{}, 1), providers: o.Providers}
	ofMemory, err := loadMemory(o.Memory, o.Dir)
	if err != nil {
		return nil, err
	}
	if ofMemory != nil {
		m.providers = append([]Provider{ofMemory}, m.providers...)
	}
	file := checkpoint.File{Path: filepath.Join(o.Dir, cpuCheckpoint), Version: cpuCheckpointVersion}
	var saved cpuState
	found, err := file.Load(&saved)
	switch {
	case err != nil:
		return nil, err
	case o.CPUs == nil && found:
		return nil, file.Unusable("it is of --cpu-manager-policy=static, and the policy is none")
	case o.CPUs == nil:
		return m, nil
	case found:
		state, err := saved.state()
		if err == nil {
			err = o.CPUs.Restore(state)
		}
		if err != nil {
			return nil, file.Unusable(err.Error())
		}
	}
	own := cpuProvider{Static: o.CPUs, file: file, metrics: o.Metrics}
	m.providers = append([]Provider{own}, m.providers...)
	m.recordShared()
	return m, own.Save()
}

// TopologyReason is the reason of pods that the topology policy does not admit.
const TopologyReason = "TopologyAffinityError"

// unexpectedReason is kubelet's for pods for which an allocation fails.
const unexpectedReason = "UnexpectedAdmissionError"

// Admit allocates the resources of a pod's containers. If the node cannot, it allocates
// nothing and returns why.
func (m *Manager) Admit(p *corev1.Pod) *admit.Refusal {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.providers) == 0 {
		return nil
	}
	began := m.o.Clock.Now()
	refusal := m.allocate(p)
	m.o.Metrics.TopologyAdmission(m.o.Clock.Since(began), refusal != nil && m.o.Merger.Policy != topology.None)
	if refusal == nil {
		if err := m.save(p.UID); err != nil {
			refusal = &admit.Refusal{Reason: unexpectedReason, Message: err.Error()}
		}
	}
	if refusal != nil {
		for _, of := range m.providers {
			of.Release(p.UID)
		}
	}
	m.recordShared()
	m.reconcileSoon()
	return refusal
}

// recordShared records the size of the pool of shared CPUs.
func (m *Manager) recordShared() {
	if s := m.o.CPUs; s != nil {
		m.o.Metrics.SharedCPUs(s.Shared().Intersection(s.Allocatable()).Size())
	}
}

// save writes the checkpoints of those resources of which a pod has some.
func (m *Manager) save(uid types.UID) error {
	var errs []error
	for _, of := range m.providers {
		if slices.Contains(of.Pods(), uid) {
			errs = append(errs, of.Save())
		}
	}
	return errors.Join(errs...)
}

func (m *Manager) allocate(p *corev1.Pod) *admit.Refusal {
	var ofPod topology.Hint
	if m.o.PerPod {
		var admitted bool
		if ofPod, admitted = m.o.Merger.Merge(m.hints(func(of Provider) topology.Hints { return of.PodHints(p) })); !admitted {
			return notAligned()
		}
	}
	for _, c := range containers(p) {
		best := ofPod
		if !m.o.PerPod {
			var admitted bool
			if best, admitted = m.o.Merger.Merge(m.hints(func(of Provider) topology.Hints { return of.Hints(p, c) })); !admitted {
				return notAligned()
			}
		}
		for _, of := range m.providers {
			if err := of.Allocate(p, c, best.Nodes); err != nil {
				return refused(err)
			}
		}
	}
	return nil
}

func (m *Manager) hints(of func(Provider) topology.Hints) []topology.Hints {
	var all []topology.Hints
	for _, provider := range m.providers {
		all = append(all, of(provider))
	}
	return all
}

// containers returns the containers that get resources, in the order of their start.
func containers(p *corev1.Pod) []*corev1.Container {
	var all []*corev1.Container
	for i := range p.Spec.InitContainers {
		all = append(all, &p.Spec.InitContainers[i])
	}
	for i := range p.Spec.Containers {
		all = append(all, &p.Spec.Containers[i])
	}
	return all
}

func notAligned() *admit.Refusal {
	return &admit.Refusal{Reason: TopologyReason, Message: "Resources cannot be allocated with Topology locality"}
}

// refused returns the refusal of an allocation that failed: its own reason, or
// kubelet's for all others.
func refused(err error) *admit.Refusal {
	var own interface{ Reason() string }
	if errors.As(err, &own) {
		return &admit.Refusal{Reason: own.Reason(), Message: err.Error()}
	}
	return &admit.Refusal{Reason: unexpectedReason, Message: fmt.Sprintf("Allocate failed due to %v, which is unexpected", err)}
}

// Pods returns the pods that have resources.
func (m *Manager) Pods() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []types.UID
	for _, of := range m.providers {
		all = append(all, of.Pods()...)
	}
	return all
}

// Retain frees the resources of all other pods. It must not be called before all
// sources of pods have delivered them.
func (m *Manager) Retain(pods []*corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	keep := map[types.UID]bool{}
	for _, p := range pods {
		keep[p.UID] = true
	}
	for _, of := range m.providers {
		released := false
		for _, uid := range of.Pods() {
			if !keep[uid] {
				of.Release(uid)
				released = true
			}
		}
		if !released {
			continue
		}
		if err := of.Save(); err != nil {
			// The next change writes it again; after a restart the pods are released again.
			klog.Background().Error(err, "Failed to save the CPUs, memory and devices of ended pods")
		}
		m.recordShared()
		m.reconcileSoon()
	}
}
