package podspec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
)

// amounts are resources by name and quantity.
type amounts map[corev1.ResourceName]string

func (a amounts) list() corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, amount := range a {
		list[name] = quantity.MustParse(amount)
	}
	return list
}

func requirements(requests, limits amounts) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: requests.list(), Limits: limits.list()}
}

func containersWith(resources ...corev1.ResourceRequirements) []corev1.Container {
	var containers []corev1.Container
	for _, r := range resources {
		containers = append(containers, corev1.Container{Resources: r})
	}
	return containers
}

func TestQOSClass(t *testing.T) {
	both := amounts{"cpu": "1", "memory": "1Gi"}
	nothing, guaranteed := requirements(nil, nil), requirements(both, both)
	burstable := requirements(amounts{"cpu": "500m", "memory": "1Gi"}, both)
	hugePages := requirements(amounts{"hugepages-2Mi": "2Mi"}, amounts{"hugepages-2Mi": "2Mi"})
	storage := requirements(amounts{"ephemeral-storage": "1Gi"}, nil)
	zero := requirements(amounts{"cpu": "0"}, nil)
	for _, test := range []struct {
		rule       string
		init, main []corev1.ResourceRequirements
		pod        *corev1.ResourceRequirements
		want       corev1.PodQOSClass
	}{
		{"nothing is BestEffort", nil, []corev1.ResourceRequirements{nothing}, nil, corev1.PodQOSBestEffort},
		{"zero is nothing", nil, []corev1.ResourceRequirements{zero}, nil, corev1.PodQOSBestEffort},
		{"only cpu and memory count", nil, []corev1.ResourceRequirements{storage}, nil, corev1.PodQOSBestEffort},
		{"a request without a limit is Burstable", nil, []corev1.ResourceRequirements{requirements(amounts{"cpu": "1"}, nil)}, nil, corev1.PodQOSBurstable},
		{"a limit without a request, which defaulting would set, is Burstable", nil, []corev1.ResourceRequirements{requirements(nil, both)}, nil, corev1.PodQOSBurstable},
		{"cpu without memory is Burstable", nil, []corev1.ResourceRequirements{requirements(amounts{"cpu": "1"}, amounts{"cpu": "1"})}, nil, corev1.PodQOSBurstable},
		{"requests below limits are Burstable", nil, []corev1.ResourceRequirements{burstable}, nil, corev1.PodQOSBurstable},
		{"requests equal to limits are Guaranteed", nil, []corev1.ResourceRequirements{guaranteed, guaranteed}, nil, corev1.PodQOSGuaranteed},
		{"equal quantities may be written differently", nil, []corev1.ResourceRequirements{requirements(amounts{"cpu": "1000m", "memory": "1024Mi"}, both)}, nil, corev1.PodQOSGuaranteed},
		{"one container without resources is Burstable", nil, []corev1.ResourceRequirements{guaranteed, nothing}, nil, corev1.PodQOSBurstable},
		{"init containers count", []corev1.ResourceRequirements{nothing}, []corev1.ResourceRequirements{guaranteed}, nil, corev1.PodQOSBurstable},
		{"pod-level resources count instead of the containers'", nil, []corev1.ResourceRequirements{nothing}, &guaranteed, corev1.PodQOSGuaranteed},
		{"pod-level huge pages count instead of the containers'", nil, []corev1.ResourceRequirements{guaranteed}, &hugePages, corev1.PodQOSBestEffort},
		{"empty pod-level resources are none", nil, []corev1.ResourceRequirements{guaranteed}, &corev1.ResourceRequirements{}, corev1.PodQOSGuaranteed},
		{"pod-level resources that are unsupported are none", nil, []corev1.ResourceRequirements{burstable}, &storage, corev1.PodQOSBurstable},
	} {
		t.Run(test.rule, func(t *testing.T) {
			spec := &corev1.PodSpec{InitContainers: containersWith(test.init...), Containers: containersWith(test.main...), Resources: test.pod}
			if got := QOSClass(spec); got != test.want {
				t.Errorf("class %s, want %s", got, test.want)
			}
		})
	}
}

func TestQOSClassInStatusIsKept(t *testing.T) {
	p := &corev1.Pod{Status: corev1.PodStatus{QOSClass: corev1.PodQOSGuaranteed}}
	if got := QOSClassOf(p); got != corev1.PodQOSGuaranteed {
		t.Errorf("class %s", got)
	}
}

func TestOnlySucceededAndFailedAreTerminal(t *testing.T) {
	for phase, want := range map[corev1.PodPhase]bool{
		"": false, corev1.PodPending: false, corev1.PodRunning: false, corev1.PodUnknown: false,
		corev1.PodSucceeded: true, corev1.PodFailed: true,
	} {
		if got := IsTerminal(phase); got != want {
			t.Errorf("%s: %t", phase, got)
		}
	}
}
