// Package extendedresource owns the admission plugin ExtendedResourceToleration of
// Kubernetes: pods that request an extended resource tolerate the taint of the
// resource's name, which keeps other pods away from the nodes that have it.
package extendedresource

import (
	"context"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"

	"svc.dev/svc/apis/podspec"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "ExtendedResourceToleration"

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) {
		return &plugin{admission.NewHandler(admission.Create, admission.Update)}, nil
	})
}

type plugin struct{ *admission.Handler }

var _ admission.MutationInterface = &plugin{}

// Admit implements admission.MutationInterface.
func (p *plugin) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	// The Go type is the same for every group domain of the kind.
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || a.GetSubresource() != "" {
		return nil
	}
	requested := sets.New[string]()
	for _, c := range podspec.NonEphemeral(&pod.Spec) {
		for name := range c.Resources.Requests {
			if podspec.IsExtendedResource(name) {
				requested.Insert(string(name))
			}
		}
	}
	for _, name := range sets.List(requested) {
		needed := corev1.Toleration{Key: name, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
		if !slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return needed.MatchToleration(&t) }) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, needed)
		}
	}
	return nil
}
