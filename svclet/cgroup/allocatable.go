package cgroup

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// PIDs is the resource of process numbers, in reservations and in the node's
// inner capacity; the API does not show it.
const PIDs corev1.ResourceName = "pid"

// Allocatable is what a node has for pods: its capacity, less what is reserved
// (--svc-reserved, --system-reserved) and what the thresholds of hard eviction
// (hardEviction, as amounts) keep free. Huge pages are taken out of memory. It
// is never negative.
func Allocatable(capacity, kubeReserved, systemReserved, hardEviction corev1.ResourceList) corev1.ResourceList {
	allocatable := less(capacity, kubeReserved, systemReserved, hardEviction)
	memory, hasMemory := allocatable[corev1.ResourceMemory]
	if !hasMemory {
		return allocatable
	}
	for name, amount := range capacity {
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			memory.Sub(amount)
		}
	}
	allocatable[corev1.ResourceMemory] = positive(memory)
	return allocatable
}

// less takes lists from a capacity, resource by resource.
func less(capacity corev1.ResourceList, lists ...corev1.ResourceList) corev1.ResourceList {
	left := corev1.ResourceList{}
	for name, amount := range capacity {
		amount = amount.DeepCopy()
		for _, list := range lists {
			if taken, set := list[name]; set {
				amount.Sub(taken)
			}
		}
		left[name] = positive(amount)
	}
	return left
}

func positive(amount resource.Quantity) resource.Quantity {
	if amount.Sign() < 0 {
		amount.Set(0)
	}
	return amount
}

// CheckReservations refuses to reserve more than there is.
func CheckReservations(capacity, kubeReserved, systemReserved, hardEviction corev1.ResourceList) error {
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(capacity)) {
		var reserved resource.Quantity
		for _, list := range []corev1.ResourceList{kubeReserved, systemReserved, hardEviction} {
			if amount, set := list[name]; set {
				reserved.Add(amount)
			}
		}
		available := capacity[name]
		if reserved.Cmp(available) > 0 {
			problems = append(problems, fmt.Sprintf(
				"Resource %q has a reservation of %v but capacity of %v. Expected capacity >= reservation.",
				name, &reserved, &available))
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("invalid Node Allocatable configuration. %s", strings.Join(problems, " "))
	}
	return nil
}
