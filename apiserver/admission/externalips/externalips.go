// Package externalips owns the admission plugin DenyServiceExternalIPs of Kubernetes:
// services get no new external IPs, by which their users could take over the traffic
// to any address (CVE-2020-8554).
package externalips

import (
	"context"
	"errors"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "DenyServiceExternalIPs"

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) {
		return &plugin{admission.NewHandler(admission.Create, admission.Update)}, nil
	})
}

type plugin struct{ *admission.Handler }

var _ admission.ValidationInterface = &plugin{}

// Validate implements admission.ValidationInterface. Addresses that the service has
// may stay.
func (p *plugin) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	// The Go type is the same for every group domain of the kind.
	service, ok := a.GetObject().(*corev1.Service)
	if !ok || a.GetSubresource() != "" {
		return nil
	}
	var known []string
	if old, ok := a.GetOldObject().(*corev1.Service); ok {
		known = old.Spec.ExternalIPs
	}
	for _, ip := range service.Spec.ExternalIPs {
		if !slices.Contains(known, ip) {
			return admission.NewForbidden(a, errors.New("Use of external IPs is denied by admission control")) //nolint:staticcheck // ST1005: Kubernetes' message
		}
	}
	return nil
}
