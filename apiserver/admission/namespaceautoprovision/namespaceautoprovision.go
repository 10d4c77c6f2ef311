// Package namespaceautoprovision owns the admission plugin NamespaceAutoProvision of
// Kubernetes: the namespace of a new object is created if it does not exist.
package namespaceautoprovision

import (
	"context"
	"errors"
	"io"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"svc.dev/svc/apiserver/admission/namespaces"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "NamespaceAutoProvision"

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) {
		return &plugin{namespaces.NewReader(admission.Create)}, nil
	})
}

type plugin struct{ namespaces.Reader }

var _ admission.MutationInterface = &plugin{}

// Admit implements admission.MutationInterface. A dry run creates nothing.
func (p *plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.IsDryRun() || !namespaces.Within(a) {
		return nil
	}
	if !p.WaitForReady() {
		return admission.NewForbidden(a, errors.New("not yet ready to handle request"))
	}
	_, err := p.Lister.Get(a.GetNamespace())
	if apierrors.IsNotFound(err) {
		missing := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.GetNamespace()}}
		_, err = p.Client.CoreV1().Namespaces().Create(ctx, missing, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return admission.NewForbidden(a, err)
	}
	return nil
}
