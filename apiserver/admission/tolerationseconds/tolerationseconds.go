// Package tolerationseconds owns the admission plugin DefaultTolerationSeconds of
// Kubernetes: pods tolerate a node that is not ready or unreachable for some
// minutes, unless they have a toleration of their own. Without it, a node that
// does not report for a minute would lose all its pods.
package tolerationseconds

import (
	"context"
	"io"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "DefaultTolerationSeconds"

// Defaults are the toleration seconds of pods without a toleration of their own.
type Defaults struct {
	NotReady, Unreachable int64
}

// NewDefaults returns Kubernetes' defaults, five minutes each.
func NewDefaults() *Defaults { return &Defaults{NotReady: 300, Unreachable: 300} }

// AddFlags adds the flags.
func (d *Defaults) AddFlags(fs *pflag.FlagSet) {
	fs.Int64Var(&d.NotReady, "default-not-ready-toleration-seconds", d.NotReady,
		"For how many seconds a pod that does not say so itself stays on a node that is not ready.")
	fs.Int64Var(&d.Unreachable, "default-unreachable-toleration-seconds", d.Unreachable,
		"For how many seconds a pod that does not say so itself stays on a node that cannot be reached.")
}

// Register registers the plugin. It uses the values that defaults have when the
// server starts.
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
	// The Go type is the same for every group domain of the kind.
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || a.GetSubresource() != "" {
		return nil
	}
	given := pod.Spec.Tolerations
	for _, missing := range []corev1.Toleration{
		{Key: corev1.TaintNodeNotReady, TolerationSeconds: &p.NotReady},
		{Key: corev1.TaintNodeUnreachable, TolerationSeconds: &p.Unreachable},
	} {
		if !tolerates(given, missing.Key) {
			seconds := *missing.TolerationSeconds
			missing.TolerationSeconds = &seconds
			missing.Operator, missing.Effect = corev1.TolerationOpExists, corev1.TaintEffectNoExecute
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, missing)
		}
	}
	return nil
}

// tolerates reports whether one of the tolerations matches a NoExecute taint of
// the key. An empty key matches all keys, an empty effect all effects.
func tolerates(tolerations []corev1.Toleration, key string) bool {
	for _, t := range tolerations {
		if (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "") {
			return true
		}
	}
	return false
}
