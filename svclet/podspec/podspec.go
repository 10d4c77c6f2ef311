// Package podspec walks the containers of pods' specs.
package podspec

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
)

// List names a list of containers in a PodSpec as its JSON does.
type List string

// The lists of a PodSpec.
const (
	InitContainers      List = "initContainers"
	Containers          List = "containers"
	EphemeralContainers List = "ephemeralContainers"
)

// All are the containers of a spec in the order of their start, each with the
// list that it is in. They are the spec's own, not copies.
func All(spec *corev1.PodSpec) iter.Seq2[List, *corev1.Container] {
	return func(yield func(List, *corev1.Container) bool) {
		for i := range spec.InitContainers {
			if !yield(InitContainers, &spec.InitContainers[i]) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(Containers, &spec.Containers[i]) {
				return
			}
		}
		for i := range spec.EphemeralContainers {
			if !yield(EphemeralContainers, (*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)) {
				return
			}
		}
	}
}

// Lasting are the containers that a pod has from its beginning, as All without
// ephemeral ones: those that count for its resources.
func Lasting(spec *corev1.PodSpec) iter.Seq2[List, *corev1.Container] {
	return func(yield func(List, *corev1.Container) bool) {
		for list, c := range All(spec) {
			if list == EphemeralContainers || !yield(list, c) {
				return
			}
		}
	}
}

// Find is the container of that name, which is one of a kind in its pod; nil if
// there is none.
func Find(spec *corev1.PodSpec, name string) (List, *corev1.Container) {
	for list, c := range All(spec) {
		if c.Name == name {
			return list, c
		}
	}
	return "", nil
}

// IsSidecar says whether a container is an init container that goes on
// (KEP-753).
func IsSidecar(list List, c *corev1.Container) bool {
	return list == InitContainers && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}
