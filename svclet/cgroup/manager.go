package cgroup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubectl/pkg/util/qos"
)

// What --enforce-node-allocatable may name.
const (
	EnforcePods                       = "pods"
	EnforceSystemReserved             = "system-reserved"
	EnforceKubeReserved               = "kube-reserved"
	EnforceSystemReservedCompressible = "system-reserved-compressible"
	EnforceKubeReservedCompressible   = "kube-reserved-compressible"
)

// Options are a node's cgroups. Those that are flags bear their names.
type Options struct {
	// Root is --cgroup-root: a cgroup that exists. Default: the root of all.
	Root string
	// MakeRoot makes Root where it does not exist.
	MakeRoot bool
	// PerQOS is --cgroups-per-qos. Without it pods have no cgroups of their
	// own: their containers are where the runtime puts them, or in Root.
	PerQOS bool
	// Driver is --cgroup-driver; it must be the runtime's. Default: cgroupfs.
	Driver Driver
	// PodMaxPIDs is --pod-max-pids; none if it is not positive.
	PodMaxPIDs int64
	CPU        CPUQuota

	// Capacity is the node's, process numbers ([PIDs]) included.
	Capacity corev1.ResourceList
	// KubeReserved, SystemReserved and their cgroups are --svc-reserved,
	// --system-reserved, --svc-reserved-cgroup and --system-reserved-cgroup.
	KubeReserved, SystemReserved             corev1.ResourceList
	KubeReservedCgroup, SystemReservedCgroup string
	// Enforce is --enforce-node-allocatable.
	Enforce []string
	// QOSReserved is --qos-reserved of memory: the percentage of what pods request
	// that those of lower classes may not use. 0 sets no bound.
	QOSReserved int
}

// Manager keeps the cgroups of a node's pods. Its methods may be called at the
// same time for different pods.
type Manager struct {
	options Options
	tree    tree
	// kubepods holds all pods; it is the root itself without PerQOS.
	kubepods name

	mu     sync.Mutex
	bounds bounds // that classes are held to
}

// tree is the hierarchy of cgroups.
type tree interface {
	exists(path string) error
	// apply makes a cgroup, where it is not there yet, and sets its limits.
	apply(n name, limits Limits) error
	// set sets the limits of one that exists.
	set(n name, limits Limits) error
	// directories are the names of those right below a cgroup, in any of the
	// hierarchies.
	directories(path string) ([]string, error)
	// kill kills all processes in a cgroup and below it, and waits for their
	// end.
	kill(ctx context.Context, n name) error
	remove(n name) error
	// memory is what a cgroup uses, in bytes.
	memory(n name) (int64, error)
	hugepageSizes() []int64
	// cpus is the list of all CPUs where it has to be told to the driver.
	cpus() (string, error)
}

// New finds the machine's cgroups. It changes nothing yet.
func New(o Options) (*Manager, error) {
	if o.Driver == "" {
		o.Driver = Cgroupfs
	}
	if o.Driver != Cgroupfs && o.Driver != Systemd {
		return nil, fmt.Errorf("cgroup driver %q is neither %s nor %s", o.Driver, Cgroupfs, Systemd)
	}
	tree, err := newTree(o.Driver)
	if err != nil {
		return nil, err
	}
	return newManager(o, tree), nil
}

func newManager(o Options, tree tree) *Manager {
	m := &Manager{options: o, tree: tree, kubepods: Cgroupfs.name(o.Root)}
	if o.PerQOS {
		m.kubepods = m.kubepods.child("kubepods")
	}
	return m
}

// findRoot makes sure that Root exists.
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
	if err := m.tree.apply(root, limits); err != nil {
		return fmt.Errorf("make the cgroup %s: %w", m.options.Root, err)
	}
	return nil
}

// Start makes the cgroups of all pods and of their classes, or sets anew the
// limits of those that are there.
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
	// A node whose pods use more than is allocatable now goes on with the old
	// bound; Enforce says so.
	limits.Memory = nil
	if err := m.tree.apply(m.kubepods, limits); err != nil {
		return fmt.Errorf("make the cgroup of all pods: %w", err)
	}
	return m.makeClasses()
}

// Enforce holds all pods to what is allocatable, and the reserved cgroups to
// their reservations, as --enforce-node-allocatable says, and tells event what
// is to be recorded about the node. Where pods use more than they may now, the
// kernel refuses the bound: try again later.
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
			err = m.tree.set(m.kubepods, limits)
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
			err = m.tree.set(n, resourceLimits(reserved.resources, reserved.compressible))
		}
		if err != nil {
			failures = append(failures, fail(fmt.Sprintf("Failed to enforce %s Cgroup Limits on %q: %v", reserved.title, reserved.cgroup, err)))
			continue
		}
		succeed(fmt.Sprintf("Updated limits on %s cgroup %v", reserved.what, reserved.cgroup))
	}
	return errors.Join(failures...)
}

// nodeLimits are those of all pods together: what is allocatable if that is
// enforced, else all there is. Eviction acts before the bound is reached, so
// that its thresholds are not taken from it.
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

// Parent is the cgroup below which a pod's containers are to be, as the runtime
// is told it; empty where the runtime is to choose.
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

// Create makes a pod's cgroup, or sets anew the limits of one that is there.
func (m *Manager) Create(pod *corev1.Pod) error { return m.write(pod, m.tree.apply) }

// Update sets the limits of a pod's cgroup to those of its present spec.
func (m *Manager) Update(pod *corev1.Pod) error { return m.write(pod, m.tree.set) }

func (m *Manager) write(pod *corev1.Pod, write func(name, Limits) error) error {
	if !m.options.PerQOS {
		return nil
	}
	n, err := m.pod(pod)
	if err != nil {
		return err
	}
	if err := write(n, PodLimits(pod, m.options.CPU, m.options.PodMaxPIDs)); err != nil {
		return fmt.Errorf("failed to create container for %v : %w", []string(n), err)
	}
	return nil
}

// Remove kills what is left in a pod's cgroup, and removes it. It needs no more
// of the pod than its UID, so that what a former agent left can go, too.
func (m *Manager) Remove(ctx context.Context, uid types.UID) error {
	if !m.options.PerQOS {
		return nil
	}
	element, err := podElement(uid)
	if err != nil {
		return err
	}
	var failures []error
	for _, class := range classes() {
		n := m.class(class).child(element)
		if err := m.tree.kill(ctx, n); err != nil {
			failures = append(failures, fmt.Errorf("failed to kill all the processes attached to the %v cgroups : %w", []string(n), err))
			continue
		}
		if err := m.tree.remove(n); err != nil {
			failures = append(failures, fmt.Errorf("failed to delete cgroup paths for %v : %w", []string(n), err))
		}
	}
	return errors.Join(failures...)
}

// Pods are the pods that have a cgroup, sorted.
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

func (m *Manager) pod(pod *corev1.Pod) (name, error) {
	element, err := podElement(pod.UID)
	if err != nil {
		return nil, err
	}
	return m.class(qos.GetPodQOS(pod)).child(element), nil
}

// less takes lists from a capacity, resource by resource, as far as there is any.
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
