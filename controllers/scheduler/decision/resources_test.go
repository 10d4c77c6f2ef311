package decision

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestPodsInResizeCountWithTheMaximum: until the node has shrunk a pod, the pod
// counts with its allocated resources (KEP-1287).
func TestPodsInResizeCountWithTheMaximum(t *testing.T) {
	pod := parsePod("web on=a cpu=1")
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", AllocatedResources: quantities("cpu=2")}}
	if got := newRequirements(pod).cpu; got != 2000 {
		t.Errorf("got %d", got)
	}
}

// TestSumOfContainersEqualsTheLibrary compares the fast path of simple pods with the
// library.
func TestSumOfContainersEqualsTheLibrary(t *testing.T) {
	for _, words := range []string{"", "cpu=1", "memory=1Gi", "cpu=100m memory=1Gi ephemeral-storage=1Gi example.com/gpu=2", "cpu=0"} {
		pod := parsePod("web " + words)
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Resources: requests("cpu=2", "example.com/gpu=1")})
		short, ok := sumOfContainers(pod)
		if !ok {
			t.Fatalf("%s: not simple", words)
		}
		pod.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: resource.Quantity{}}
		if long := newRequirements(pod); !reflect.DeepEqual(short, long) {
			t.Errorf("%s: got %+v, want %+v", words, short, long)
		}
	}
}
