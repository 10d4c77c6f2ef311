// Package volumelabel owns the admission plugin PersistentVolumeLabel of Kubernetes: a volume of
// a cloud gets its zone and region as labels, and a node affinity for them. svc has no cloud
// provider that could be asked, so it takes them from the labels that a provisioner has set.
package volumelabel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "PersistentVolumeLabel"

const (
	// provisionedBy is the annotation of volumes that a provisioner has made, whose labels are
	// trusted.
	provisionedBy = "pv.kubernetes.io/provisioned-by"
	// zoneDelimiter separates the zones of a volume that is in several.
	zoneDelimiter = "__"
)

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
	volume, ok := a.GetObject().(*corev1.PersistentVolume)
	if !ok || a.GetSubresource() != "" {
		return nil
	}
	keys := topologyOf(volume)
	switch {
	case keys == nil && ofCloud(&volume.Spec):
		return admission.NewForbidden(a, errors.New("the zone of the volume is not known, since there is no cloud provider: set the labels "+
			corev1.LabelTopologyZone+" and "+corev1.LabelTopologyRegion+" with the annotation "+provisionedBy+", or disable the admission plugin "+PluginName))
	case keys == nil:
		return nil
	}
	requirements := make([]corev1.NodeSelectorRequirement, 0, len(keys))
	for _, key := range keys {
		values := []string{volume.Labels[key]}
		if key == corev1.LabelTopologyZone || key == corev1.LabelFailureDomainBetaZone {
			values = strings.Split(volume.Labels[key], zoneDelimiter)
			if slices.Contains(values, "") {
				return admission.NewForbidden(a, fmt.Errorf("failed to convert label string for Zone: %s to a Set", volume.Labels[key]))
			}
			slices.Sort(values)
			values = slices.Compact(values)
		}
		requirements = append(requirements, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values})
	}
	addAffinity(&volume.Spec, requirements)
	return nil
}

// topologyOf returns the keys of the labels of zone and region of a volume of a provisioner, or
// nil.
func topologyOf(volume *corev1.PersistentVolume) []string {
	if _, ok := volume.Annotations[provisionedBy]; !ok {
		return nil
	}
	for _, keys := range [][]string{
		{corev1.LabelTopologyZone, corev1.LabelTopologyRegion},
		{corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion},
	} {
		if _, ok := volume.Labels[keys[0]]; !ok {
			continue
		}
		if _, ok := volume.Labels[keys[1]]; ok {
			return keys
		}
	}
	return nil
}

// ofCloud reports whether a volume is of a cloud that Kubernetes 1.28 asks.
func ofCloud(spec *corev1.PersistentVolumeSpec) bool {
	return spec.GCEPersistentDisk != nil || spec.AzureDisk != nil || spec.VsphereVolume != nil
}

// addAffinity adds requirements to each term of the volume's node affinity, except those whose
// key the term has.
func addAffinity(spec *corev1.PersistentVolumeSpec, requirements []corev1.NodeSelectorRequirement) {
	if spec.NodeAffinity == nil {
		spec.NodeAffinity = &corev1.VolumeNodeAffinity{}
	}
	if spec.NodeAffinity.Required == nil {
		spec.NodeAffinity.Required = &corev1.NodeSelector{}
	}
	terms := &spec.NodeAffinity.Required.NodeSelectorTerms
	if len(*terms) == 0 {
		*terms = make([]corev1.NodeSelectorTerm, 1)
	}
	for i := range *terms {
		has := (*terms)[i].MatchExpressions
		for _, r := range requirements {
			if !slices.ContainsFunc(has, func(h corev1.NodeSelectorRequirement) bool { return h.Key == r.Key }) {
				(*terms)[i].MatchExpressions = append((*terms)[i].MatchExpressions, r)
			}
		}
	}
}
