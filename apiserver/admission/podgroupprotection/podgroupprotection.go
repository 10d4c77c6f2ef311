// Package podgroupprotection owns the admission plugin PodGroupProtection of Kubernetes: new
// PodGroups get a finalizer, which the controller podgroupprotection removes when no pod of the
// group runs any more (KEP-4671).
package podgroupprotection

import (
	"context"
	"io"
	"slices"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apiserver/pkg/admission"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "PodGroupProtection"

const finalizer = "scheduling.k8s.io/podgroup-protection"

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
	if group, ok := a.GetObject().(*schedulingv1beta1.PodGroup); ok && a.GetSubresource() == "" && !slices.Contains(group.Finalizers, finalizer) {
		group.Finalizers = append(group.Finalizers, finalizer)
	}
	return nil
}
