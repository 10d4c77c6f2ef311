// Package antiaffinity owns the admission plugin LimitPodHardAntiAffinityTopology of
// Kubernetes: a pod may require to be apart from others only by node, because a wider
// topology would let one pod keep others from a whole zone.
package antiaffinity

import (
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "LimitPodHardAntiAffinityTopology"

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) {
		return &plugin{admission.NewHandler(admission.Create, admission.Update)}, nil
	})
}

type plugin struct{ *admission.Handler }

var _ admission.ValidationInterface = &plugin{}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	// The Go type is the same for every group domain of the kind.
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || a.GetSubresource() != "" || pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	for _, term := range pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		if term.TopologyKey != corev1.LabelHostname {
			return admission.NewForbidden(a, fmt.Errorf("affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey %v but only key %v is allowed", term.TopologyKey, corev1.LabelHostname))
		}
	}
	return nil
}
