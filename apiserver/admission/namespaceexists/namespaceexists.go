// Package namespaceexists owns the admission plugin NamespaceExists of Kubernetes:
// requests in a namespace that does not exist are refused. NamespaceLifecycle does
// this, too, for new objects.
package namespaceexists

import (
	"context"
	"io"

	"k8s.io/apiserver/pkg/admission"

	"svc.dev/svc/apiserver/admission/namespaces"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "NamespaceExists"

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) {
		return &plugin{namespaces.NewReader(admission.Create, admission.Update, admission.Delete)}, nil
	})
}

type plugin struct{ namespaces.Reader }

var _ admission.ValidationInterface = &plugin{}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !namespaces.Within(a) {
		return nil
	}
	_, err := p.Of(ctx, a)
	return err
}
