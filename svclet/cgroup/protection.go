package cgroup

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"svc.dev/svc/apis/podspec"
)

// Protection is how the memory that pods request is protected from reclaim (the feature gate
// MemoryQoS). It needs cgroup v2.
type Protection string

// The protections. The empty one leaves the files of cgroups unchanged.
const (
	// ProtectAll guarantees what each pod requests (release 1.28).
	ProtectAll Protection = "All"
	// ProtectTiered guarantees it to guaranteed pods, and prefers it for burstable ones
	// (memoryReservationPolicy: TieredReservation).
	ProtectTiered Protection = "TieredReservation"
	// ProtectNone removes protections (memoryReservationPolicy: None).
	ProtectNone Protection = "None"
)

// The files of cgroup v2.
const (
	MemoryMin  = "memory.min"
	MemoryLow  = "memory.low"
	MemoryHigh = "memory.high"
)

// Of returns the values of memory.min and memory.low for what a pod, or a container of a
// pod, of a class requests; nil if they are left unchanged.
func (p Protection) Of(class corev1.PodQOSClass, request int64) map[string]int64 {
	switch {
	case p == "":
		return nil
	case p == ProtectNone || request <= 0:
		return map[string]int64{MemoryMin: 0, MemoryLow: 0}
	case p == ProtectTiered && class != corev1.PodQOSGuaranteed:
		return map[string]int64{MemoryMin: 0, MemoryLow: request}
	}
	return map[string]int64{MemoryMin: request, MemoryLow: 0}
}

// podProtection is the protection of a pod's cgroup.
func (m *Manager) podProtection(pod *corev1.Pod) map[string]int64 {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	return m.options.Protection.Of(podspec.QOSClassOf(pod), requests.Memory().Value())
}

// protect protects the memory of the cgroup of all pods, by what all of them request, and of
// the class Burstable. The caller holds mu.
func (m *Manager) protect(wanted bounds) error {
	if m.options.Protection == "" {
		return nil
	}
	for _, of := range []struct {
		class   corev1.PodQOSClass
		request int64
	}{{corev1.PodQOSGuaranteed, wanted.requested + wanted.burstableRequested}, {corev1.PodQOSBurstable, wanted.burstableRequested}} {
		if err := m.set(m.class(of.class), Limits{Protected: m.options.Protection.Of(of.class, of.request)}); err != nil {
			return fmt.Errorf("protect the memory of the class %s: %w", of.class, err)
		}
	}
	return nil
}
