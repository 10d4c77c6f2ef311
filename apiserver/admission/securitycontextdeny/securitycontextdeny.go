// Package securitycontextdeny owns the admission plugin SecurityContextDeny of
// Kubernetes, which release 1.30 removed: pods may not choose their user, groups or
// SELinux options. PodSecurity takes its place.
package securitycontextdeny

import (
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"

	"svc.dev/svc/apis/podspec"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "SecurityContextDeny"

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
	if !ok || a.GetSubresource() != "" {
		return nil
	}
	if field := chosen(&pod.Spec); field != "" {
		return admission.NewForbidden(a, fmt.Errorf("%s is forbidden", field))
	}
	return nil
}

// chosen returns the name of the first forbidden field that is set, or "".
func chosen(spec *corev1.PodSpec) string {
	if c := spec.SecurityContext; c != nil {
		switch {
		case c.SupplementalGroups != nil:
			return "pod.Spec.SecurityContext.SupplementalGroups"
		case c.SELinuxOptions != nil:
			return "pod.Spec.SecurityContext.SELinuxOptions"
		case c.RunAsUser != nil:
			return "pod.Spec.SecurityContext.RunAsUser"
		case c.FSGroup != nil:
			return "pod.Spec.SecurityContext.FSGroup"
		}
	}
	for _, container := range podspec.All(spec) {
		switch c := container.SecurityContext; {
		case c == nil:
		case c.SELinuxOptions != nil:
			return "SecurityContext.SELinuxOptions"
		case c.RunAsUser != nil:
			return "SecurityContext.RunAsUser"
		}
	}
	return ""
}
