package podspec

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func spec() *corev1.PodSpec {
	return &corev1.PodSpec{
		Containers: []corev1.Container{{Name: "a"}, {Name: "b", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}},
		InitContainers: []corev1.Container{
			{Name: "i"}, {Name: "s", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
			{Name: "n", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyNever)},
		},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e"}}},
	}
}

func TestContainersAreIteratedInStartOrder(t *testing.T) {
	var all, nonEphemeral []string
	for at, c := range All(spec()) {
		all = append(all, string(at.List)+"/"+c.Name)
	}
	for at, c := range NonEphemeral(spec()) {
		nonEphemeral = append(nonEphemeral, string(at.List)+"/"+c.Name)
	}
	want := []string{"initContainers/i", "initContainers/s", "initContainers/n", "containers/a", "containers/b", "ephemeralContainers/e"}
	if !slices.Equal(all, want) || !slices.Equal(nonEphemeral, want[:5]) {
		t.Errorf("all %v, nonEphemeral %v", all, nonEphemeral)
	}
}

func TestAWalkEndsWhereItIsLeft(t *testing.T) {
	s := spec()
	for n := 1; n <= 6; n++ {
		seen := 0
		for range All(s) {
			if seen++; seen == n {
				break
			}
		}
		if seen != n {
			t.Errorf("saw %d, left after %d", seen, n)
		}
	}
}

func TestContainersAreFoundByNameAndAreTheSpecsOwn(t *testing.T) {
	s := spec()
	for name, want := range map[string]List{"a": Containers, "s": InitContainers, "e": EphemeralContainers, "none": ""} {
		list, c := Find(s, name)
		if list != want || (c == nil) != (want == "") {
			t.Errorf("%s: %s, %v", name, list, c)
		}
	}
	_, e := Find(s, "e")
	e.Image = "changed"
	if s.EphemeralContainers[0].Image != "changed" {
		t.Error("an ephemeral container is a copy")
	}
}

func TestOnlyInitContainersAreSidecars(t *testing.T) {
	for at, c := range All(spec()) {
		if got := IsSidecar(at.List, c); got != (c.Name == "s") {
			t.Errorf("%s: %t", c.Name, got)
		}
	}
}
