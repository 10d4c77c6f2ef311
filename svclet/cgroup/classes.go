package cgroup

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"svc.dev/svc/apis/podspec"
)

func classes() []corev1.PodQOSClass {
	return []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort}
}

// class returns the cgroup of a QoS class: guaranteed pods are directly below
// kubepods.
func (m *Manager) class(class corev1.PodQOSClass) name {
	if class == corev1.PodQOSGuaranteed {
		return m.kubepods
	}
	return m.kubepods.child(strings.ToLower(string(class)))
}

// bounds are the limits of the QoS classes that follow from the active pods.
type bounds struct {
	// shares are those of the class Burstable: the sum of its pods' requests.
	shares uint64
	// burstable and bestEffort are memory limits in bytes; 0 leaves them unchanged.
	burstable, bestEffort int64
	// requested and burstableRequested are the bytes that the guaranteed and the burstable
	// pods request.
	requested, burstableRequested int64
}

// boundsOf computes the limits of the classes from the allocatable memory in
// bytes. Lower classes may not use the given percentage of what the pods of a
// class request (--qos-reserved). A limit is never 0, which a cgroup would treat
// as no limit.
func boundsOf(pods []*corev1.Pod, allocatable int64, percentage int) bounds {
	var milliCPU int64
	requested := map[corev1.PodQOSClass]int64{}
	for _, pod := range pods {
		class := podspec.QOSClassOf(pod)
		requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
		requested[class] += requests.Memory().Value()
		if class == corev1.PodQOSBurstable {
			milliCPU += requests.Cpu().MilliValue()
		}
	}
	b := bounds{shares: Shares(milliCPU), requested: requested[corev1.PodQOSGuaranteed], burstableRequested: requested[corev1.PodQOSBurstable]}
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

// classLimits returns the limits of a QoS class. Huge pages are limited per pod.
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

// makeClasses creates the cgroups of the classes, or updates the limits of
// existing ones. What depends on the running pods stays unchanged.
func (m *Manager) makeClasses() error {
	least := uint64(minShares)
	for _, class := range []struct {
		name   corev1.PodQOSClass
		shares *uint64
	}{{corev1.PodQOSBurstable, nil}, {corev1.PodQOSBestEffort, &least}} {
		if err := m.apply(m.class(class.name), classLimits(class.shares, 0, m.tree.hugepageSizes())); err != nil {
			return fmt.Errorf("make the cgroup of the class %s: %w", class.name, err)
		}
	}
	return nil
}

// freeClasses removes memory limits that an earlier agent, with --qos-reserved,
// may have set.
func (m *Manager) freeClasses() error {
	if m.options.QOSReserved != 0 {
		return nil
	}
	all := int64(-1)
	for _, class := range []corev1.PodQOSClass{corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
		if err := m.set(m.class(class), Limits{Memory: &all}); err != nil {
			return fmt.Errorf("class %s: %w", class, err)
		}
	}
	return nil
}

// UpdateClasses sets the CPU shares of the class Burstable to those of the active
// pods, so that best-effort pods cannot take them, and applies --qos-reserved to
// memory. A class that uses more than its limit is limited to its current usage,
// and the next call tries again.
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
	if err == nil {
		err = m.protect(wanted)
	}
	m.bounds = bounds{}
	if err == nil && reached {
		m.bounds = wanted
	}
	return err
}

// bound sets the limits of a class. reached reports whether it uses more memory
// than that.
func (m *Manager) bound(class corev1.PodQOSClass, shares *uint64, memory int64) (reached bool, err error) {
	n := m.class(class)
	limits := classLimits(shares, memory, m.tree.hugepageSizes())
	if err = m.set(n, limits); err == nil {
		return true, nil
	}
	err = fmt.Errorf("update the cgroup of the class %s: %w", class, err)
	if memory == 0 {
		return false, err
	}
	used, _, unknown := m.tree.memory(n)
	if unknown != nil || used <= memory {
		return false, err
	}
	limits.Memory = &used
	if err := m.set(n, limits); err != nil {
		return false, fmt.Errorf("update the cgroup of the class %s, which uses %d bytes of memory and is to use %d: %w", class, used, memory, err)
	}
	return false, nil
}
