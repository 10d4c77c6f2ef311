package cgroup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"svc.dev/svc/apis/podspec"
)

// The values of --enforce-node-allocatable.
const (
	EnforcePods                       = "pods"
	EnforceSystemReserved             = "system-reserved"
	EnforceKubeReserved               = "kube-reserved"
	EnforceSystemReservedCompressible = "system-reserved-compressible"
	EnforceKubeReservedCompressible   = "kube-reserved-compressible"
)

// Options configure the node's cgroups. Fields for flags are named after them.
type Options struct {
	// Root is --cgroup-root: an existing cgroup, by default the root of the hierarchy.
	Root string
	// MakeRoot creates Root if it does not exist.
	MakeRoot bool
	// PerQOS is --cgroups-per-qos. Without it pods have no cgroups of their own: their
	// containers are where the runtime creates them, or in Root.
	PerQOS bool
	// Driver is --cgroup-driver, which must be the runtime's, by default cgroupfs.
	Driver Driver
	// PodMaxPIDs is --pod-max-pids; no limit if it is not positive.
	PodMaxPIDs int64
	CPU        CPUQuota

	// Capacity is the node's capacity, including process IDs ([PIDs]).
	Capacity corev1.ResourceList
	// KubeReserved, SystemReserved and their cgroups are --svc-reserved,
	// --system-reserved, --svc-reserved-cgroup and --system-reserved-cgroup.
	KubeReserved, SystemReserved             corev1.ResourceList
	KubeReservedCgroup, SystemReservedCgroup string
	// Enforce is --enforce-node-allocatable.
	Enforce []string
	// QOSReserved is --qos-reserved for memory: the percentage of the pods' requests
	// that lower classes may not use. 0 means no limit.
	QOSReserved int

	// Protection is how memory is protected; empty on cgroup v1.
	Protection Protection

	// Hierarchies are the mount points of the controllers of cgroup v1, by their
	// names. Nil means that the machine's cgroups are used.
	Hierarchies map[string]string
	// Measured is called after each operation on a cgroup: "create", "update" or "destroy", the
	// label operation_type of kubelet_cgroup_manager_duration_seconds. It may be nil.
	Measured func(operation string, took time.Duration)
	// Clock is the real one if it is nil.
	Clock clock.Clock
}

// Manager manages the cgroups of the node's pods. Its methods are safe for
// concurrent use with different pods.
type Manager struct {
	options Options
	tree    tree
	// kubepods contains all pods; it is the root itself without PerQOS.
	kubepods name

	mu     sync.Mutex
	bounds bounds // of the classes
}

// tree is the cgroup hierarchy.
type tree interface {
	exists(path string) error
	// apply creates a cgroup if it does not exist, and sets its limits.
	apply(n name, limits Limits) error
	// set sets the limits of an existing cgroup.
	set(n name, limits Limits) error
	// directories returns the names of a cgroup's children, in any of the hierarchies.
	directories(path string) ([]string, error)
	// kill kills all processes in a cgroup and below it, and waits until they have
	// exited.
	kill(ctx context.Context, n name) error
	// pids returns the processes in a cgroup and below it.
	pids(n name) ([]int, error)
	remove(n name) error
	// memory returns the memory usage of a cgroup, in bytes, and the part of it that the
	// kernel cannot simply reclaim.
	memory(n name) (used, workingSet int64, err error)
	// memoryLimit returns the memory limit of a cgroup, in bytes; a very large one is none.
	memoryLimit(n name) (int64, error)
	hugepageSizes() []int64
	// cpus returns the list of all CPUs if the driver needs it.
	cpus() (string, error)
}

// New returns a manager of the machine's cgroups. It changes nothing yet.
func New(o Options) (*Manager, error) {
	if o.Driver == "" {
		o.Driver = Cgroupfs
	}
	if o.Driver != Cgroupfs && o.Driver != Systemd {
		return nil, fmt.Errorf("cgroup driver %q is neither %s nor %s", o.Driver, Cgroupfs, Systemd)
	}
	o = o.withDefaults()
	tree, err := newTree(o)
	if err != nil {
		return nil, err
	}
	return newManager(o, tree), nil
}

func (o Options) withDefaults() Options {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Measured == nil {
		o.Measured = func(string, time.Duration) {}
	}
	return o
}

func newManager(o Options, tree tree) *Manager {
	return &Manager{options: o.withDefaults(), tree: tree, kubepods: podsName(o.Root, o.PerQOS)}
}

// findRoot checks that Root exists.
func (m *Manager) findRoot() error {
	root := m.kubepods[:len(m.kubepods)-1]
	err := m.tree.exists(m.options.Driver.path(root))
	if err == nil {
		return nil
	}
	if !m.options.MakeRoot {
		return fmt.Errorf("--cgroup-root: there is no cgroup %q: make it, or leave the flag out: %w", m.options.Root, err)
	}
	var limits Limits
	if limits.CPUs, err = m.tree.cpus(); err != nil {
		return err
	}
	if err := m.apply(root, limits); err != nil {
		return fmt.Errorf("make the cgroup %s: %w", m.options.Root, err)
	}
	return nil
}

// Start creates the cgroups of all pods and of the QoS classes, or updates the
// limits of existing ones.
func (m *Manager) Start() error {
	if !m.options.PerQOS {
		return nil
	}
	if err := m.findRoot(); err != nil {
		return err
	}
	limits, err := m.nodeLimits()
	if err != nil {
		return err
	}
	// If pods use more than is allocatable now, the old limit stays; Enforce reports
	// that.
	limits.Memory = nil
	if err := m.apply(m.kubepods, limits); err != nil {
		return fmt.Errorf("make the cgroup of all pods: %w", err)
	}
	return m.makeClasses()
}

// Enforce limits all pods to allocatable, and the reserved cgroups to their
// reservations, according to --enforce-node-allocatable. It calls event for events
// about the node. If the usage exceeds a new limit, the kernel refuses the limit:
// retry later.
func (m *Manager) Enforce(event func(kind, reason, message string)) error {
	fail := func(message string) error {
		event(corev1.EventTypeWarning, "FailedNodeAllocatableEnforcement", message)
		return errors.New(message)
	}
	succeed := func(message string) {
		event(corev1.EventTypeNormal, "NodeAllocatableEnforced", message)
	}
	var failures []error
	if m.options.PerQOS {
		limits, err := m.nodeLimits()
		if err == nil {
			err = m.set(m.kubepods, limits)
		}
		if err == nil {
			err = m.freeClasses()
		}
		if err != nil {
			failures = append(failures, fail(fmt.Sprintf("Failed to update Node Allocatable Limits %q: %v", []string(m.kubepods), err)))
		} else {
			succeed("Updated Node Allocatable limit across pods")
		}
	}
	for _, reserved := range []struct {
		key, title, what string
		cgroup           string
		resources        corev1.ResourceList
		compressible     bool
	}{
		{EnforceSystemReserved, "System Reserved", "system reserved", m.options.SystemReservedCgroup, m.options.SystemReserved, false},
		{EnforceKubeReserved, "Kube Reserved", "kube reserved", m.options.KubeReservedCgroup, m.options.KubeReserved, false},
		{EnforceSystemReservedCompressible, "System Reserved Compressible", "system reserved", m.options.SystemReservedCgroup, m.options.SystemReserved, true},
		{EnforceKubeReservedCompressible, "Kube Reserved Compressible", "kube reserved", m.options.KubeReservedCgroup, m.options.KubeReserved, true},
	} {
		if !slices.Contains(m.options.Enforce, reserved.key) {
			continue
		}
		n := m.options.Driver.name(reserved.cgroup)
		err := m.tree.exists(m.options.Driver.path(n))
		if err == nil {
			limits := resourceLimits(reserved.resources, reserved.compressible)
			if limits.Memory != nil && m.options.Protection != "" && m.options.Protection != ProtectNone {
				limits.Protected = map[string]int64{MemoryMin: *limits.Memory}
			}
			err = m.set(n, limits)
		}
		if err != nil {
			failures = append(failures, fail(fmt.Sprintf("Failed to enforce %s Cgroup Limits on %q: %v", reserved.title, reserved.cgroup, err)))
			continue
		}
		succeed(fmt.Sprintf("Updated limits on %s cgroup %v", reserved.what, reserved.cgroup))
	}
	return errors.Join(failures...)
}

// nodeLimits returns the limits of all pods together: allocatable if that is
// enforced, else the capacity. Eviction thresholds are not subtracted, because
// eviction acts before the limit is reached.
func (m *Manager) nodeLimits() (Limits, error) {
	resources := m.options.Capacity
	if slices.Contains(m.options.Enforce, EnforcePods) {
		resources = less(resources, m.options.SystemReserved, m.options.KubeReserved)
	}
	limits := resourceLimits(resources, false)
	var err error
	limits.CPUs, err = m.tree.cpus()
	return limits, err
}

// Parent returns the cgroup parent for a pod's containers in the runtime's
// notation; empty if the runtime chooses.
func (m *Manager) Parent(pod *corev1.Pod) (string, error) {
	if !m.options.PerQOS {
		if len(m.kubepods) == 0 {
			return "", nil
		}
		return m.options.Driver.path(m.kubepods), nil
	}
	n, err := m.pod(pod)
	if err != nil {
		return "", err
	}
	return m.options.Driver.path(n), nil
}

// Create creates a pod's cgroup, or updates the limits of an existing one. A limit of memory
// that would be lowered below what an existing one uses, after a resize that was refused, stays as
// it is, also if the usage is unknown: keptMemory reports that.
func (m *Manager) Create(pod *corev1.Pod) (keptMemory bool, err error) {
	err = m.write(pod, "create container", func(n name, limits Limits) error {
		if m.tree.exists(m.options.Driver.path(n)) == nil && m.memorySuffices(n, limits) != nil {
			limits.Memory, keptMemory = nil, true
		}
		return m.apply(n, limits)
	})
	return keptMemory, err
}

// MemorySuffices returns an error if the spec of a pod lowers its limit of memory below what it
// uses, or if that is unknown.
func (m *Manager) MemorySuffices(pod *corev1.Pod) error {
	return m.write(pod, "set the limits", m.memorySuffices)
}

// Resize sets the limits of a pod's cgroup to those of its spec, after MemorySuffices. If
// before, the pod with the limits that it has, is not nil, they are raised and not lowered.
func (m *Manager) Resize(pod, before *corev1.Pod) error {
	return m.write(pod, "set the limits", func(n name, limits Limits) error {
		if before != nil {
			limits = Larger(limits, PodLimits(before, m.options.CPU, m.options.PodMaxPIDs))
			if m.memorySuffices(n, limits) != nil {
				limits.Memory = nil // Create has left a higher one
			}
		}
		return m.set(n, limits)
	})
}

// memorySuffices returns an error if a limit lower than the present one is below what a cgroup
// uses and cannot give back, or if that is unknown: the kernel would kill its processes (cgroup
// v2) or refuse the limit (v1).
func (m *Manager) memorySuffices(n name, limits Limits) error {
	if limits.Memory == nil || *limits.Memory <= 0 {
		return nil
	}
	if present, err := m.tree.memoryLimit(n); err == nil && *limits.Memory >= present {
		return nil
	}
	_, used, err := m.tree.memory(n)
	if err != nil {
		return err
	}
	if used > *limits.Memory {
		return fmt.Errorf("attempting to set the memory limit of the pod (%d) below current usage (%d)", *limits.Memory, used)
	}
	return nil
}

func (m *Manager) write(pod *corev1.Pod, what string, write func(name, Limits) error) error {
	if !m.options.PerQOS {
		return nil
	}
	n, err := m.pod(pod)
	if err != nil {
		return err
	}
	limits := PodLimits(pod, m.options.CPU, m.options.PodMaxPIDs)
	limits.Protected = m.podProtection(pod)
	if err := write(n, limits); err != nil {
		return fmt.Errorf("failed to %s for %v : %w", what, []string(n), err)
	}
	return nil
}

// Remove kills all processes in a pod's cgroup, and removes it. It needs only the
// pod's UID, so that cgroups of an earlier agent can be removed too.
func (m *Manager) Remove(ctx context.Context, uid types.UID) error {
	if !m.options.PerQOS {
		return nil
	}
	element, err := podElement(uid)
	if err != nil {
		return err
	}
	var failures []error
	var removing time.Duration
	for _, class := range classes() {
		n := m.class(class).child(element)
		if err := m.tree.kill(ctx, n); err != nil {
			failures = append(failures, fmt.Errorf("failed to kill all the processes attached to the %v cgroups : %w", []string(n), err))
			continue
		}
		began := m.options.Clock.Now()
		if err := m.tree.remove(n); err != nil {
			failures = append(failures, fmt.Errorf("failed to delete cgroup paths for %v : %w", []string(n), err))
		}
		removing += m.options.Clock.Since(began)
	}
	m.options.Measured("destroy", removing)
	return errors.Join(failures...)
}

// apply creates a cgroup if it does not exist, sets its limits, and measures that.
func (m *Manager) apply(n name, limits Limits) error {
	began := m.options.Clock.Now()
	err := m.tree.apply(n, limits)
	m.options.Measured("create", m.options.Clock.Since(began))
	return err
}

// set sets the limits of an existing cgroup, and measures that.
func (m *Manager) set(n name, limits Limits) error {
	began := m.options.Clock.Now()
	err := m.tree.set(n, limits)
	m.options.Measured("update", m.options.Clock.Since(began))
	return err
}

// Pods returns the UIDs of the pods that have a cgroup, sorted.
func (m *Manager) Pods() ([]types.UID, error) {
	if !m.options.PerQOS {
		return nil, nil
	}
	found := map[types.UID]bool{}
	for _, class := range classes() {
		path := m.options.Driver.path(m.class(class))
		directories, err := m.tree.directories(path)
		if err != nil {
			return nil, fmt.Errorf("list the cgroups of pods: %w", err)
		}
		for _, directory := range directories {
			if uid, isPod := m.options.Driver.podUID(path + "/" + directory); isPod {
				found[uid] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// Running returns the UIDs of the pods whose cgroup has processes, sorted.
func (m *Manager) Running() ([]types.UID, error) {
	uids, err := m.Pods()
	if err != nil {
		return nil, err
	}
	var running []types.UID
	for _, uid := range uids {
		element, err := podElement(uid)
		if err != nil {
			return nil, err
		}
		pids := 0
		for _, class := range classes() {
			found, err := m.tree.pids(m.class(class).child(element))
			if err != nil {
				return nil, err
			}
			pids += len(found)
		}
		if pids > 0 {
			running = append(running, uid)
		}
	}
	return running, nil
}

func (m *Manager) pod(pod *corev1.Pod) (name, error) {
	element, err := podElement(pod.UID)
	if err != nil {
		return nil, err
	}
	return m.class(podspec.QOSClassOf(pod)).child(element), nil
}

// less subtracts resource lists from a capacity; the result is never negative.
func less(capacity corev1.ResourceList, lists ...corev1.ResourceList) corev1.ResourceList {
	left := corev1.ResourceList{}
	for name, amount := range capacity {
		amount = amount.DeepCopy()
		for _, list := range lists {
			if taken, set := list[name]; set {
				amount.Sub(taken)
			}
		}
		if amount.Sign() < 0 {
			amount.Set(0)
		}
		left[name] = amount
	}
	return left
}
