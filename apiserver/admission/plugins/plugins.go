// Package plugins lists the admission plugins of the API server, in the order in
// which they run.
package plugins

import (
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"

	"svc.dev/svc/apiserver/admission/limitranger"
	"svc.dev/svc/apiserver/admission/noderestriction"
	"svc.dev/svc/apiserver/admission/priority"
	"svc.dev/svc/apiserver/admission/resourcequota"
	"svc.dev/svc/apiserver/admission/serviceaccount"
	"svc.dev/svc/apiserver/admission/tolerationseconds"
)

// Plugin declares an admission plugin.
type Plugin struct {
	// Name is its name in --enable-admission-plugins, --disable-admission-plugins
	// and the file of --admission-control-config-file.
	Name string
	// On is whether it is enabled by default.
	On bool
	// Does is a sentence about it for the reference documentation.
	Does string
	// register registers it; nil is for a plugin that the library registers.
	register func(*admission.Plugins)
}

// Register registers the plugin, unless the library has registered it.
func (p Plugin) Register(plugins *admission.Plugins) {
	if p.register != nil {
		p.register(plugins)
	}
}

// The values of Plugin.On.
const (
	on  = true
	off = false
)

// All returns the plugins in the order of Kubernetes 1.28. Plugins that change
// objects run before the webhooks, so that webhooks see the change.
// https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers
func All(tolerations *tolerationseconds.Defaults) []Plugin {
	defaultTolerations := func(plugins *admission.Plugins) { tolerationseconds.Register(plugins, tolerations) }
	return []Plugin{
		{lifecycle.PluginName, on, "refuses new objects in namespaces that do not exist or are being deleted, and the deletion of `default`, `kube-system` and `kube-public`.", nil},
		{limitranger.PluginName, on, "applies the defaults and limits of LimitRanges to pods and claims.", limitranger.Register},
		{serviceaccount.PluginName, on, "gives pods a service account, its token and its pull secrets.", serviceaccount.Register},
		{noderestriction.PluginName, on, "restricts nodes to their own Node and pods.", noderestriction.Register},
		{priority.PluginName, on, "sets the priority of pods from their priority class.", priority.Register},
		{tolerationseconds.PluginName, on, "sets for how long pods tolerate nodes that are not ready or unreachable.", defaultTolerations},
		{mutatingpolicy.PluginName, on, "evaluates MutatingAdmissionPolicies.", nil},
		{mutatingwebhook.PluginName, on, "calls the webhooks of MutatingWebhookConfigurations.", nil},
		{validatingpolicy.PluginName, on, "evaluates ValidatingAdmissionPolicies.", nil},
		{validatingwebhook.PluginName, on, "calls the webhooks of ValidatingWebhookConfigurations.", nil},
		{resourcequota.PluginName, on, "refuses what would exceed a ResourceQuota, and adds what it admits to the quota's usage.", resourcequota.Register},
	}
}
