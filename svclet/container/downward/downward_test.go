package downward

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func testPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "shop", UID: "u-1",
			Labels:      map[string]string{"b": "2", "a": "1", "a.example/c[d]": "x"},
			Annotations: map[string]string{"Example.com/Note": "two\nlines", "plain": `"q"`},
		},
		Spec: corev1.PodSpec{NodeName: "n1", ServiceAccountName: "sa"},
	}
}

func TestVariable(t *testing.T) {
	for _, test := range []struct{ path, want, err string }{
		{path: "metadata.name", want: "web"},
		{path: "metadata.namespace", want: "shop"},
		{path: "metadata.uid", want: "u-1"},
		{path: "metadata.labels['a']", want: "1"},
		{path: "metadata.labels['none']"},
		{path: "metadata.annotations['Example.com/Note']", want: "two\nlines"},
		{path: "metadata.annotations", want: "Example.com/Note=\"two\\nlines\"\nplain=\"\\\"q\\\"\""},
		{path: "spec.nodeName", want: "n1"},
		{path: "spec.host", want: "n1"},
		{path: "spec.serviceAccountName", want: "sa"},
		{path: "status.hostIP", want: "192.0.2.1"},
		{path: "status.hostIPs", want: "192.0.2.1,2001:db8::1"},
		{path: "status.podIP", want: "10.0.0.1"},
		{path: "status.podIPs", want: "10.0.0.1,fd00::1"},
		{path: "metadata.labels['']", err: "invalid key subscript in metadata.labels['']"},
		{path: "metadata.labels['a b']", err: "invalid key subscript"},
		{path: "metadata.name['x']", err: `fieldPath "metadata.name['x']" does not support subscript`},
		{path: "['x']", err: "unsupported fieldPath: ['x']"},
		{path: "spec.restartPolicy", err: "unsupported fieldPath: spec.restartPolicy"},
	} {
		addresses := Addresses{PodIPs: []string{"10.0.0.1", "fd00::1"}, HostIPs: []string{"192.0.2.1", "2001:db8::1"}}
		got, err := Variable(testPod(), &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: test.path}, addresses)
		if got != test.want || test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
			t.Errorf("%s: %q, %v, want %q, %q", test.path, got, err, test.want, test.err)
		}
	}
	if _, err := Variable(testPod(), &corev1.ObjectFieldSelector{APIVersion: "v2", FieldPath: "metadata.name"}, Addresses{}); err == nil {
		t.Error("an unknown version was read")
	}
	if got, err := Variable(testPod(), &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}, Addresses{}); got != "" || err != nil {
		t.Errorf("no address yet: %q, %v", got, err)
	}
}

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func TestResource(t *testing.T) {
	allocatable := list("cpu", "3500m", "memory", "7Gi", "ephemeral-storage", "90Gi", "hugepages-2Mi", "1Gi")
	bound := corev1.Container{Name: "bound", Resources: corev1.ResourceRequirements{
		Requests: list("cpu", "250m", "memory", "1000", "hugepages-2Mi", "4Mi"),
		Limits:   list("cpu", "1500m", "memory", "1025", "hugepages-2Mi", "4Mi"),
	}}
	free := corev1.Container{Name: "free"}
	for _, test := range []struct {
		name, container, resource, divisor string
		ofPod                              corev1.ResourceList
		want, err                          string
	}{
		{name: "a limit of CPUs, rounded up", resource: "limits.cpu", want: "2"},
		{name: "a request in thousandths", resource: "requests.cpu", divisor: "1m", want: "250"},
		{name: "a limit of memory, rounded up", resource: "limits.memory", divisor: "1Ki", want: "2"},
		{name: "a request of memory", resource: "requests.memory", want: "1000"},
		{name: "huge pages", resource: "limits.hugepages-2Mi", divisor: "1Mi", want: "4"},
		{name: "no request", container: "free", resource: "requests.memory", want: "0"},
		{name: "no limit: the node's", container: "free", resource: "limits.memory", divisor: "1Gi", want: "7"},
		{name: "no limit: the pod's", container: "free", resource: "limits.memory", divisor: "1Gi", ofPod: list("memory", "2Gi"), want: "2"},
		{name: "no limit, and another one of the pod's", container: "free", resource: "limits.cpu", ofPod: list("memory", "2Gi"), want: "4"},
		{name: "no limit of storage", container: "free", resource: "limits.ephemeral-storage", divisor: "1Gi", want: "90"},
		{name: "no limit of huge pages: none", container: "free", resource: "limits.hugepages-2Mi", want: "0"},
		{name: "a container that is not there", container: "none", resource: "limits.cpu", err: "container none not found"},
		{name: "an unknown resource", resource: "limits.example.com/gpu", err: "unsupported container resource : limits.example.com/gpu"},
		{name: "neither request nor limit", resource: "usage.cpu", err: "unsupported container resource : usage.cpu"},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := testPod()
			pod.Spec.Containers = []corev1.Container{bound, free}
			if test.ofPod != nil {
				pod.Spec.Resources = &corev1.ResourceRequirements{Limits: test.ofPod}
			}
			selector := &corev1.ResourceFieldSelector{Resource: test.resource, ContainerName: test.container}
			if test.divisor != "" {
				selector.Divisor = resource.MustParse(test.divisor)
			}
			got, err := Resource(pod, &pod.Spec.Containers[0], selector, allocatable)
			if got != test.want || test.err == "" && err != nil || test.err != "" && (err == nil || err.Error() != test.err) {
				t.Errorf("%q, %v, want %q, %q", got, err, test.want, test.err)
			}
		})
	}
}
