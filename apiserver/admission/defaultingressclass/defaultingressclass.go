// Package defaultingressclass owns the admission plugin DefaultIngressClass of
// Kubernetes: new ingresses that name no class get the default one.
// https://kubernetes.io/docs/concepts/services-networking/ingress/#default-ingress-class
package defaultingressclass

import (
	"context"
	"errors"
	"io"

	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/informers"
	networkinglisters "k8s.io/client-go/listers/networking/v1"

	"svc.dev/svc/apiserver/admission/defaultclass"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "DefaultIngressClass"

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) {
		return &plugin{Handler: admission.NewHandler(admission.Create)}, nil
	})
}

type plugin struct {
	*admission.Handler
	classes networkinglisters.IngressClassLister
}

var (
	_ admission.MutationInterface                  = &plugin{}
	_ initializer.WantsExternalKubeInformerFactory = &plugin{}
)

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
func (p *plugin) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	classes := f.Networking().V1().IngressClasses()
	p.classes = classes.Lister()
	p.SetReadyFunc(classes.Informer().HasSynced)
}

// ValidateInitialization implements admission.InitializationValidator.
func (p *plugin) ValidateInitialization() error {
	if p.classes == nil {
		return errors.New("the plugin needs informers")
	}
	return nil
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
	if !p.WaitForReady() {
		return admission.NewForbidden(a, errors.New("not yet ready to handle request"))
	}
	classes, err := p.classes.List(labels.Everything())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	if class, found := defaultclass.Newest(classes, networkingv1.AnnotationIsDefaultIngressClass); found {
		name := class.Name
		ingress.Spec.IngressClassName = &name
	}
	return nil
}
