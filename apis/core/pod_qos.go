package core

import (
	corev1 "k8s.io/api/core/v1"
)

// qosClass is the class of service that a pod's cpu and memory give it:
// BestEffort without any, Guaranteed if every container has limits for both
// and requests as much, else Burstable. A pod's own resources, if it has
// any, count instead of its containers'. Ephemeral containers have none.
func qosClass(spec *corev1.PodSpec) corev1.PodQOSClass {
	var all []*corev1.ResourceRequirements
	if spec.Resources != nil {
		all = append(all, spec.Resources)
	} else {
		for _, c := range containersOf(spec) {
			if c.Kind != ephemeralContainer {
				all = append(all, &c.Resources)
			}
		}
	}
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	guaranteed := true
	for _, r := range all {
		addCompute(requests, r.Requests)
		guaranteed = addCompute(limits, r.Limits) == 2 && guaranteed
	}
	switch {
	case len(requests) == 0 && len(limits) == 0:
		return corev1.PodQOSBestEffort
	case guaranteed && sameAmounts(requests, limits):
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// addCompute adds the cpu and memory of more to sum and says how many of the
// two there were.
func addCompute(sum, more corev1.ResourceList) int {
	found := 0
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if amount := more[name]; amount.Sign() > 0 {
			found++
			total := amount.DeepCopy()
			total.Add(sum[name])
			sum[name] = total
		}
	}
	return found
}

func sameAmounts(a, b corev1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, amount := range a {
		other, ok := b[name]
		if !ok || amount.Cmp(other) != 0 {
			return false
		}
	}
	return true
}
