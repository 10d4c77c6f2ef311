package cgroup

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/kubectl/pkg/util/qos"
)

func classes() []corev1.PodQOSClass {
	return []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort}
}

// class is the cgroup of a class: guaranteed pods are right below kubepods.
func (m *Manager) class(class corev1.PodQOSClass) name {
	if class == corev1.PodQOSGuaranteed {
		return m.kubepods
	}
	return m.kubepods.child(strings.ToLower(string(class)))
}

// bounds are what the pods that are active leave to the classes.
type bounds struct {
	// shares are those of the class Burstable: what its pods request together.
	shares uint64
	// burstable and bestEffort are bytes of memory; 0 leaves them as they are.
	burstable, bestEffort int64
}

// boundsOf are those of classes of which allocatable bytes of memory may be used.
// Of what the pods of a class request, those of lower classes may not use a
// percentage (--qos-reserved). None is bounded to nothing, which would be no bound
// to a cgroup.
func boundsOf(pods []*corev1.Pod, allocatable int64, percentage int) bounds {
	var milliCPU int64
	requested := map[corev1.PodQOSClass]int64{}
	for _, pod := range pods {
		class := qos.GetPodQOS(pod)
		requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
		requested[class] += requests.Memory().Value()
		if class == corev1.PodQOSBurstable {
			milliCPU += requests.Cpu().MilliValue()
		}
	}
	b := bounds{shares: Shares(milliCPU)}
	if percentage == 0 {
		return b
	}
	reserved := func(class corev1.PodQOSClass) int64 {
		part := int64(percentage)
		return requested[class]/100*part + requested[class]%100*part/100
	}
	burstable := allocatable - reserved(corev1.PodQOSGuaranteed)
	b.burstable, b.bestEffort = max(burstable, 1), max(burstable-reserved(corev1.PodQOSBurstable), 1)
	return b
}

// classLimits are those of a class of service. Huge pages are the pods' own to
// bound.
func classLimits(shares *uint64, memory int64, hugepageSizes []int64) Limits {
	limits := Limits{Shares: shares, Hugepages: map[int64]int64{}}
	if memory != 0 {
		limits.Memory = &memory
	}
	for _, size := range hugepageSizes {
		limits.Hugepages[size] = 1 << 62
	}
	return limits
}

// makeClasses makes the cgroups of the classes, or sets anew the limits of those
// that are there. What depends on the pods that run is left as it is.
func (m *Manager) makeClasses() error {
	least := uint64(minShares)
	for _, class := range []struct {
		name   corev1.PodQOSClass
		shares *uint64
	}{{corev1.PodQOSBurstable, nil}, {corev1.PodQOSBestEffort, &least}} {
		if err := m.tree.apply(m.class(class.name), classLimits(class.shares, 0, m.tree.hugepageSizes())); err != nil {
			return fmt.Errorf("make the cgroup of the class %s: %w", class.name, err)
		}
	}
	return nil
}

// freeClasses takes away the bounds of memory that a former agent, with
// --qos-reserved, may have set.
func (m *Manager) freeClasses() error {
	if m.options.QOSReserved != 0 {
		return nil
	}
	all := int64(-1)
	for _, class := range []corev1.PodQOSClass{corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
		if err := m.tree.set(m.class(class), Limits{Memory: &all}); err != nil {
			return fmt.Errorf("class %s: %w", class, err)
		}
	}
	return nil
}

// UpdateClasses gives the class Burstable the shares of the pods that are
// active, so that best-effort pods take nothing from them, and keeps the memory
// of --qos-reserved from lower classes. A class that uses more than it may is
// bounded to what it uses; its bound is tried again by the next call.
func (m *Manager) UpdateClasses(active []*corev1.Pod) error {
	if !m.options.PerQOS {
		return nil
	}
	allocatable := less(m.options.Capacity, m.options.SystemReserved, m.options.KubeReserved)
	wanted := boundsOf(active, allocatable.Memory().Value(), m.options.QOSReserved)
	m.mu.Lock()
	defer m.mu.Unlock()
	if wanted == m.bounds {
		return nil
	}
	reached, err := m.bound(corev1.PodQOSBurstable, &wanted.shares, wanted.burstable)
	if err == nil && wanted.bestEffort != 0 {
		var also bool
		also, err = m.bound(corev1.PodQOSBestEffort, nil, wanted.bestEffort)
		reached = reached && also
	}
	m.bounds = bounds{}
	if err == nil && reached {
		m.bounds = wanted
	}
	return err
}

// bound sets the limits of a class, or says that it uses more memory than that.
func (m *Manager) bound(class corev1.PodQOSClass, shares *uint64, memory int64) (reached bool, err error) {
	n := m.class(class)
	limits := classLimits(shares, memory, m.tree.hugepageSizes())
	if err = m.tree.set(n, limits); err == nil {
		return true, nil
	}
	err = fmt.Errorf("update the cgroup of the class %s: %w", class, err)
	if memory == 0 {
		return false, err
	}
	used, unknown := m.tree.memory(n)
	if unknown != nil || used <= memory {
		return false, err
	}
	limits.Memory = &used
	if err := m.tree.set(n, limits); err != nil {
		return false, fmt.Errorf("update the cgroup of the class %s, which uses %d bytes of memory and is to use %d: %w", class, used, memory, err)
	}
	return false, nil
}
