// Package nodetaint owns the admission plugin TaintNodesByCondition of Kubernetes:
// new nodes get the taint node.kubernetes.io/not-ready with the effect NoSchedule, so
// that no pod is bound to a node before it has reported that it is ready. The
// controller nodelifecycle removes the taint then.
package nodetaint

import (
	"context"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "TaintNodesByCondition"

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) {
		return &plugin{admission.NewHandler(admission.Create)}, nil
	})
}

type plugin struct{ *admission.Handler }

var _ admission.MutationInterface = &plugin{}

// Admit implements admission.MutationInterface.
func (p *plugin) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	// The Go type is the same for every group domain of the kind.
	node, ok := a.GetObject().(*corev1.Node)
	if !ok || a.GetSubresource() != "" {
		return nil
	}
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&notReady) }) {
		node.Spec.Taints = append(node.Spec.Taints, notReady)
	}
	return nil
}
