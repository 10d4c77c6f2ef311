// Package tolerationseconds lets pods stay for some minutes on a node that is
// not ready or unreachable, unless they say themselves how long. Without it one
// silent minute of a node would cost all its pods. It is the admission plugin
// DefaultTolerationSeconds of Kubernetes.
package tolerationseconds

import (
	"context"
	"io"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
)

// PluginName is its name in --enable-admission-plugins and the like.
const PluginName = "DefaultTolerationSeconds"

// Defaults are how many seconds pods stay.
type Defaults struct {
	NotReady, Unreachable int64
}

// NewDefaults are five minutes each.
func NewDefaults() *Defaults { return &Defaults{NotReady: 300, Unreachable: 300} }

// AddFlags adds the flags.
func (d *Defaults) AddFlags(fs *pflag.FlagSet) {
	fs.Int64Var(&d.NotReady, "default-not-ready-toleration-seconds", d.NotReady,
		"For how many seconds a pod that does not say so itself stays on a node that is not ready.")
	fs.Int64Var(&d.Unreachable, "default-unreachable-toleration-seconds", d.Unreachable,
		"For how many seconds a pod that does not say so itself stays on a node that cannot be reached.")
}

// Register makes the plugin known, and has it run unless it is disabled. It uses
// what the defaults are when the server starts.
func Register(plugins *admission.Plugins, defaults *Defaults) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) {
		return &plugin{Handler: admission.NewHandler(admission.Create, admission.Update), Defaults: *defaults}, nil
	})
}

type plugin struct {
	*admission.Handler
	Defaults
}

var _ admission.MutationInterface = &plugin{}

// Admit implements admission.MutationInterface.
func (p *plugin) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	// The type tells the kind in any group domain.
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || a.GetSubresource() != "" {
		return nil
	}
	given := pod.Spec.Tolerations
	for _, missing := range []corev1.Toleration{
		{Key: corev1.TaintNodeNotReady, TolerationSeconds: &p.NotReady},
		{Key: corev1.TaintNodeUnreachable, TolerationSeconds: &p.Unreachable},
	} {
		if !speaksOf(given, missing.Key) {
			seconds := *missing.TolerationSeconds
			missing.TolerationSeconds = &seconds
			missing.Operator, missing.Effect = corev1.TolerationOpExists, corev1.TaintEffectNoExecute
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, missing)
		}
	}
	return nil
}

// speaksOf tells whether tolerations are about evictions by the taint key. No
// key means all of them, and no effect any.
func speaksOf(tolerations []corev1.Toleration, key string) bool {
	for _, t := range tolerations {
		if (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "") {
			return true
		}
	}
	return false
}
