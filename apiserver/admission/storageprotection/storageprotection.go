// Package storageprotection owns the admission plugin StorageObjectInUseProtection of
// Kubernetes: new claims, volumes and VolumeAttributesClasses get a finalizer, which the
// controllers pvcprotection, pvprotection and vacprotection remove when the object is not
// in use any more.
// https://kubernetes.io/docs/concepts/storage/persistent-volumes/#storage-object-in-use-protection
package storageprotection

import (
	"context"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apiserver/pkg/admission"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "StorageObjectInUseProtection"

const (
	claimFinalizer  = "kubernetes.io/pvc-protection"
	volumeFinalizer = "kubernetes.io/pv-protection"
	classFinalizer  = "kubernetes.io/vac-protection"
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
	if a.GetSubresource() != "" {
		return nil
	}
	// The Go type is the same for every group domain of the kind.
	switch object := a.GetObject().(type) {
	case *corev1.PersistentVolumeClaim:
		add(&object.Finalizers, claimFinalizer)
	case *corev1.PersistentVolume:
		add(&object.Finalizers, volumeFinalizer)
	case *storagev1.VolumeAttributesClass:
		add(&object.Finalizers, classFinalizer)
	}
	return nil
}

func add(finalizers *[]string, name string) {
	if !slices.Contains(*finalizers, name) {
		*finalizers = append(*finalizers, name)
	}
}
