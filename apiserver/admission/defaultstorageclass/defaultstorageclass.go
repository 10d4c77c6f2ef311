// Package defaultstorageclass owns the admission plugin DefaultStorageClass of
// Kubernetes: new claims that name no class get the default one.
// https://kubernetes.io/docs/concepts/storage/storage-classes/#default-storageclass
package defaultstorageclass

import (
	"context"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	storagelisters "k8s.io/client-go/listers/storage/v1"

	"svc.dev/svc/apiserver/admission/defaultclass"
	"svc.dev/svc/apiserver/admission/kindreader"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "DefaultStorageClass"

// The annotations of the default class. The second one is that of the beta version.
const (
	annotation     = "storageclass.kubernetes.io/is-default-class"
	betaAnnotation = "storageclass.beta.kubernetes.io/is-default-class"
)

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) {
		return &plugin{kindreader.New(informer, admission.Create)}, nil
	})
}

type plugin struct {
	kindreader.Reader[storagelisters.StorageClassLister]
}

var _ admission.MutationInterface = &plugin{}

// informer returns the informer of the kind that the plugin reads.
func informer(f informers.SharedInformerFactory) kindreader.Informer[storagelisters.StorageClassLister] {
	return f.Storage().V1().StorageClasses()
}

// Admit implements admission.MutationInterface. An empty class name is a choice: no
// class.
func (p *plugin) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	// The Go type is the same for every group domain of the kind.
	claim, ok := a.GetObject().(*corev1.PersistentVolumeClaim)
	if !ok || a.GetSubresource() != "" || claim.Spec.StorageClassName != nil {
		return nil
	}
	if _, named := claim.Annotations[corev1.BetaStorageClassAnnotation]; named {
		return nil
	}
	if err := p.Ready(a); err != nil {
		return err
	}
	classes, err := p.Lister.List(labels.Everything())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	if class, found := defaultclass.Newest(classes, annotation, betaAnnotation); found {
		name := class.Name
		claim.Spec.StorageClassName = &name
	}
	return nil
}
