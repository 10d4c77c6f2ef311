package admit

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestResizeIsAllocatedDeferredOrInfeasible(t *testing.T) {
	for _, test := range []struct {
		name            string
		pod             *corev1.Pod
		allocated       *corev1.Pod // nil for a CPU
		options         ResizeOptions
		reason, message string
	}{
		{name: "what is free", pod: testPod("p", requesting("cpu", "1500m"))},
		{name: "what another pod has", pod: testPod("p", requesting("cpu", "1501m")), reason: "Deferred",
			message: "Node didn't have enough resource: cpu, requested: 1501, used: 500, capacity: 2000"},
		{name: "more than the node has", pod: testPod("p", requesting("memory", "2Gi")), reason: "Infeasible",
			message: "Node didn't have enough capacity: memory, requested: 2147483648, capacity: 1073741824"},
		{name: "a static pod", pod: testPod("p", static), reason: "Infeasible", message: "In-place resize of static-pods is not supported"},
		{name: "CPUs of its own", pod: testPod("p", guaranteed("cpu", "2", "memory", "1Mi")), options: ResizeOptions{StaticCPUs: true},
			reason: "Infeasible", message: "Resize is infeasible for Guaranteed Pods alongside CPU Manager static policy"},
		{name: "memory of its own", pod: testPod("p", guaranteed("cpu", "1", "memory", "1Mi")), options: ResizeOptions{StaticMemory: true},
			reason: "Infeasible", message: "Resize is infeasible for Guaranteed Pods alongside Memory Manager static policy"},
		{name: "CPUs of its own, and other memory", pod: testPod("p", guaranteed("cpu", "1", "memory", "2Mi")), allocated: testPod("p", guaranteed("cpu", "1", "memory", "1Mi")),
			options: ResizeOptions{StaticCPUs: true}},
		{name: "memory of its own, and other CPUs", pod: testPod("p", guaranteed("cpu", "1500m", "memory", "1Mi")), allocated: testPod("p", guaranteed("cpu", "1", "memory", "1Mi")),
			options: ResizeOptions{StaticMemory: true}},
		{name: "both", pod: testPod("p", guaranteed("cpu", "1", "memory", "2Mi")), allocated: testPod("p", guaranteed("cpu", "1", "memory", "1Mi")),
			options: ResizeOptions{StaticCPUs: true, StaticMemory: true},
			reason:  "Infeasible", message: "Resize is infeasible for Guaranteed Pods alongside Memory Manager static policy"},
		{name: "a burstable pod beside them", pod: testPod("p", requesting("cpu", "1")), options: ResizeOptions{StaticCPUs: true, StaticMemory: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			allocated := test.allocated
			if allocated == nil {
				allocated = testPod("p", requesting("cpu", "1"))
			}
			others := []*corev1.Pod{testPod("other", requesting("cpu", "500m")), allocated}
			refusal := Resize(test.pod, allocated, others, testNode(), test.options)
			if refusal == nil {
				refusal = &Refusal{}
			}
			if refusal.Reason != test.reason || refusal.Message != test.message {
				t.Errorf("%s: %s", refusal.Reason, refusal.Message)
			}
		})
	}
	if refusal := Resize(testPod("p"), testPod("p"), nil, nil, ResizeOptions{}); refusal == nil || refusal.Reason != "Deferred" {
		t.Errorf("without a node: %v", refusal)
	}
}
