package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// containerKind is the list of a pod spec in which a container stands.
type containerKind string

const (
	initContainer      containerKind = "initContainers"
	mainContainer      containerKind = "containers"
	ephemeralContainer containerKind = "ephemeralContainers"
)

// podContainer is a container of a pod spec, with its place. An ephemeral
// container is seen as what it has in common with the others; only name and
// target tell them apart.
type podContainer struct {
	*corev1.Container
	Kind  containerKind
	Index int
}

// path is the container's path, given the spec's.
func (c podContainer) path(spec *field.Path) *field.Path {
	return spec.Child(string(c.Kind)).Index(c.Index)
}

// isSidecar reports whether an init container keeps running beside the others.
func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// containersOf are all containers of a spec in the order of their start: init
// containers, containers, ephemeral containers. They point into the spec.
func containersOf(spec *corev1.PodSpec) []podContainer {
	all := make([]podContainer, 0, len(spec.InitContainers)+len(spec.Containers)+len(spec.EphemeralContainers))
	for i := range spec.InitContainers {
		all = append(all, podContainer{&spec.InitContainers[i], initContainer, i})
	}
	for i := range spec.Containers {
		all = append(all, podContainer{&spec.Containers[i], mainContainer, i})
	}
	for i := range spec.EphemeralContainers {
		common := (*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)
		all = append(all, podContainer{common, ephemeralContainer, i})
	}
	return all
}
