package podspec

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// List is the name of a list of containers in a PodSpec, as in its JSON.
type List string

// The lists of a PodSpec.
const (
	InitContainers      List = "initContainers"
	Containers          List = "containers"
	EphemeralContainers List = "ephemeralContainers"
)

// Position is the position of a container in a PodSpec.
type Position struct {
	List  List
	Index int
}

// Path returns the container's field path, given the path of its PodSpec.
func (p Position) Path(spec *field.Path) *field.Path {
	return spec.Child(string(p.List)).Index(p.Index)
}

// All iterates over the containers of a PodSpec in the order of their start:
// init containers, containers, ephemeral containers. The containers are the
// PodSpec's own, not copies. An ephemeral container is given as the fields that
// it shares with the others: all but its target.
func All(spec *corev1.PodSpec) iter.Seq2[Position, *corev1.Container] {
	return func(yield func(Position, *corev1.Container) bool) {
		for i := range spec.InitContainers {
			if !yield(Position{InitContainers, i}, &spec.InitContainers[i]) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(Position{Containers, i}, &spec.Containers[i]) {
				return
			}
		}
		for i := range spec.EphemeralContainers {
			if !yield(Position{EphemeralContainers, i}, (*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)) {
				return
			}
		}
	}
}

// NonEphemeral iterates over init containers and containers, in that order:
// those that may have resources and ports.
func NonEphemeral(spec *corev1.PodSpec) iter.Seq2[Position, *corev1.Container] {
	return func(yield func(Position, *corev1.Container) bool) {
		for at, c := range All(spec) {
			if at.List == EphemeralContainers || !yield(at, c) {
				return
			}
		}
	}
}

// Find returns the container with the name, which is unique in a PodSpec, and
// the list that it is in; "" and nil if there is none.
func Find(spec *corev1.PodSpec, name string) (List, *corev1.Container) {
	for at, c := range All(spec) {
		if c.Name == name {
			return at.List, c
		}
	}
	return "", nil
}

// IsSidecar reports whether the container in the list is a sidecar: an init
// container with restart policy Always (KEP-753).
func IsSidecar(list List, c *corev1.Container) bool {
	return list == InitContainers && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// MayRestartAll reports whether a rule of a container may restart all containers of the pod
// (KEP-5532).
func MayRestartAll(spec *corev1.PodSpec) bool {
	for _, c := range NonEphemeral(spec) {
		if slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
			return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		}) {
			return true
		}
	}
	return false
}
