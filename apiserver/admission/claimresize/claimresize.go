// Package claimresize owns the admission plugin PersistentVolumeClaimResize of
// Kubernetes: a claim may request more storage only if it is bound and its class
// allows volumes to be expanded.
// https://kubernetes.io/docs/concepts/storage/persistent-volumes/#expanding-persistent-volumes-claims
package claimresize

import (
	"context"
	"errors"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/component-helpers/storage/volume"

	"svc.dev/svc/apiserver/admission/kindreader"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "PersistentVolumeClaimResize"

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) {
		return &plugin{kindreader.New(informer, admission.Update)}, nil
	})
}

type plugin struct {
	kindreader.Reader[storagelisters.StorageClassLister]
}

var _ admission.ValidationInterface = &plugin{}

// informer returns the informer of the kind that the plugin reads.
func informer(f informers.SharedInformerFactory) kindreader.Informer[storagelisters.StorageClassLister] {
	return f.Storage().V1().StorageClasses()
}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	// The Go type is the same for every group domain of the kind.
	claim, isClaim := a.GetObject().(*corev1.PersistentVolumeClaim)
	old, wasClaim := a.GetOldObject().(*corev1.PersistentVolumeClaim)
	if !isClaim || !wasClaim || a.GetSubresource() != "" {
		return nil
	}
	if claim.Spec.Resources.Requests.Storage().Cmp(*old.Spec.Resources.Requests.Storage()) <= 0 {
		return nil
	}
	if old.Status.Phase != corev1.ClaimBound {
		return admission.NewForbidden(a, errors.New("Only bound persistent volume claims can be expanded")) //nolint:staticcheck // ST1005: Kubernetes' message
	}
	if err := p.Ready(a); err != nil {
		return err
	}
	if !p.expands(volume.GetPersistentVolumeClaimClass(claim), volume.GetPersistentVolumeClaimClass(old)) {
		return admission.NewForbidden(a, errors.New("only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"))
	}
	return nil
}

// expands reports whether the class of a claim, which must stay the same, allows
// expansion.
func (p *plugin) expands(name, old string) bool {
	if name == "" || name != old {
		return false
	}
	class, err := p.Lister.Get(name)
	return err == nil && class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion
}
