// Package defaultingressclass owns the admission plugin DefaultIngressClass of
// Kubernetes: new ingresses that name no class get the default one.
// https://kubernetes.io/docs/concepts/services-networking/ingress/#default-ingress-class
package defaultingressclass

import (
	"context"
	"io"

	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	networkinglisters "k8s.io/client-go/listers/networking/v1"

	"svc.dev/svc/apiserver/admission/defaultclass"
	"svc.dev/svc/apiserver/admission/kindreader"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "DefaultIngressClass"

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) {
		return &plugin{kindreader.New(informer, admission.Create)}, nil
	})
}

type plugin struct {
	kindreader.Reader[networkinglisters.IngressClassLister]
}

var _ admission.MutationInterface = &plugin{}

// informer returns the informer of the kind that the plugin reads.
func informer(f informers.SharedInformerFactory) kindreader.Informer[networkinglisters.IngressClassLister] {
	return f.Networking().V1().IngressClasses()
}

// Admit implements admission.MutationInterface. A class may also be named by the
// annotation that was in use before the field.
func (p *plugin) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	// The Go type is the same for every group domain of the kind.
	ingress, ok := a.GetObject().(*networkingv1.Ingress)
	if !ok || a.GetSubresource() != "" || ingress.Spec.IngressClassName != nil {
		return nil
	}
	if _, named := ingress.Annotations[networkingv1beta1.AnnotationIngressClass]; named {
		return nil
	}
	if err := p.Ready(a); err != nil {
		return err
	}
	classes, err := p.Lister.List(labels.Everything())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	if class, found := defaultclass.Newest(classes, networkingv1.AnnotationIsDefaultIngressClass); found {
		name := class.Name
		ingress.Spec.IngressClassName = &name
	}
	return nil
}
