// Package plugins lists the admission plugins of the API server, in the order in
// which they run.
package plugins

import (
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/component-base/featuregate"

	"svc.dev/svc/apiserver/admission/always"
	"svc.dev/svc/apiserver/admission/alwayspullimages"
	"svc.dev/svc/apiserver/admission/antiaffinity"
	"svc.dev/svc/apiserver/admission/certificates"
	"svc.dev/svc/apiserver/admission/claimresize"
	"svc.dev/svc/apiserver/admission/defaultingressclass"
	"svc.dev/svc/apiserver/admission/defaultstorageclass"
	"svc.dev/svc/apiserver/admission/eventratelimit"
	"svc.dev/svc/apiserver/admission/extendedresource"
	"svc.dev/svc/apiserver/admission/externalips"
	"svc.dev/svc/apiserver/admission/imagepolicy"
	"svc.dev/svc/apiserver/admission/limitranger"
	"svc.dev/svc/apiserver/admission/namespaceautoprovision"
	"svc.dev/svc/apiserver/admission/namespaceexists"
	"svc.dev/svc/apiserver/admission/nodefeatures"
	"svc.dev/svc/apiserver/admission/noderestriction"
	"svc.dev/svc/apiserver/admission/nodetaint"
	"svc.dev/svc/apiserver/admission/ownerreferences"
	"svc.dev/svc/apiserver/admission/podgroupprotection"
	"svc.dev/svc/apiserver/admission/podnodeselector"
	"svc.dev/svc/apiserver/admission/podresize"
	"svc.dev/svc/apiserver/admission/podsecurity"
	"svc.dev/svc/apiserver/admission/podtolerations"
	"svc.dev/svc/apiserver/admission/priority"
	"svc.dev/svc/apiserver/admission/resourcequota"
	"svc.dev/svc/apiserver/admission/runtimeclass"
	"svc.dev/svc/apiserver/admission/securitycontextdeny"
	"svc.dev/svc/apiserver/admission/serviceaccount"
	"svc.dev/svc/apiserver/admission/storageprotection"
	"svc.dev/svc/apiserver/admission/tolerationseconds"
	"svc.dev/svc/apiserver/admission/topologylabels"
	"svc.dev/svc/apiserver/admission/volumelabel"
	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/apiserver/release"
)

// Settings are what plugins need of the server's flags.
type Settings struct {
	// Tolerations are the default toleration seconds of pods.
	Tolerations *tolerationseconds.Defaults
	// Release returns the release that is served, once the flags are parsed.
	Release func() release.Release
	// Gates returns the feature gates of the release, once the flags are parsed.
	Gates func() (featuregate.FeatureGate, error)
}

// ofNodes returns the restrictions of nodes that the release has.
func (s Settings) ofNodes() (noderestriction.Restrictions, error) {
	set, err := s.Gates()
	if err != nil {
		return noderestriction.Restrictions{}, err
	}
	return noderestriction.Restrictions{
		Certificates: s.since(31) && !set.Enabled(gates.AllowInsecureSvcletCertificateSigningRequests),
		Audiences:    s.since(32) && set.Enabled(gates.ServiceAccountNodeAudienceRestriction),
	}, nil
}

// since reports whether the release is 1.minor or later.
func (s Settings) since(minor int) bool {
	return !s.Release().Before(release.Release{Major: 1, Minor: minor})
}

// matchesFeatures reports whether the release has nodes declare features, and returns the
// release.
func (s Settings) matchesFeatures() (bool, *version.Version, error) {
	set, err := s.Gates()
	if err != nil {
		return false, nil, err
	}
	r := s.Release()
	return set.Enabled(gates.NodeDeclaredFeatures), version.MajorMinor(uint(r.Major), uint(r.Minor)), nil
}

// offersExtended reports whether device classes of the release offer extended resources.
func (s Settings) offersExtended() (bool, error) {
	set, err := s.Gates()
	if err != nil {
		return false, err
	}
	return s.since(34) && set.Enabled(gates.DRAExtendedResource), nil
}

// labelsTopology reports whether the release copies the topology of nodes to pods.
func (s Settings) labelsTopology() (bool, error) {
	set, err := s.Gates()
	if err != nil {
		return false, err
	}
	return s.since(33) && set.Enabled(gates.PodTopologyLabelsAdmission), nil
}

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

// All returns the plugins in the order of Kubernetes 1.28, and PodGroupProtection,
// PodTopologyLabels, NodeDeclaredFeatureValidator and PodResizeValidator, of later releases.
// Plugins that change objects run before the webhooks, so that webhooks see the change.
// https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers
func All(s Settings) []Plugin {
	defaultTolerations := func(plugins *admission.Plugins) { tolerationseconds.Register(plugins, s.Tolerations) }
	nodeRestriction := func(plugins *admission.Plugins) { noderestriction.Register(plugins, s.ofNodes) }
	topologyLabels := func(plugins *admission.Plugins) { topologylabels.Register(plugins, s.labelsTopology) }
	nodeFeatures := func(plugins *admission.Plugins) { nodefeatures.Register(plugins, s.matchesFeatures) }
	podResize := func(plugins *admission.Plugins) { podresize.Register(plugins, func() bool { return s.since(36) }) }
	resourceQuota := func(plugins *admission.Plugins) { resourcequota.Register(plugins, s.offersExtended) }
	podSecurity := func(plugins *admission.Plugins) { podsecurity.Register(plugins, s.Release) }
	return []Plugin{
		{always.AdmitName, off, "allows everything (deprecated).", always.RegisterAdmit},
		{namespaceautoprovision.PluginName, off, "creates the namespace of a new object if it does not exist.", namespaceautoprovision.Register},
		{lifecycle.PluginName, on, "refuses new objects in namespaces that do not exist or are being deleted, and the deletion of `default`, `kube-system` and `kube-public`.", nil},
		{namespaceexists.PluginName, off, "refuses requests in namespaces that do not exist.", namespaceexists.Register},
		{securitycontextdeny.PluginName, off, "refuses pods that choose their user, groups or SELinux options (deprecated).", securitycontextdeny.Register},
		{antiaffinity.PluginName, off, "lets pods require to be apart from others only by node.", antiaffinity.Register},
		{limitranger.PluginName, on, "applies the defaults and limits of LimitRanges to pods and claims.", limitranger.Register},
		{serviceaccount.PluginName, on, "gives pods a service account, its token and its pull secrets.", serviceaccount.Register},
		{noderestriction.PluginName, on, "restricts nodes to their own Node and pods.", nodeRestriction},
		{nodetaint.PluginName, on, "taints new nodes as not ready, until they have reported that they are.", nodetaint.Register},
		{alwayspullimages.PluginName, off, "makes containers pull their image whenever they start.", alwayspullimages.Register},
		{imagepolicy.PluginName, off, "asks a backend whether the images of a pod may run; needs a configuration.", imagepolicy.Register},
		{podsecurity.PluginName, on, "enforces, audits and warns of the Pod Security Standards that the labels of namespaces choose.", podSecurity},
		{podnodeselector.PluginName, off, "sets and restricts the node selectors of pods by an annotation of their namespace.", podnodeselector.Register},
		{priority.PluginName, on, "sets the priority of pods from their priority class.", priority.Register},
		{tolerationseconds.PluginName, on, "sets for how long pods tolerate nodes that are not ready or unreachable.", defaultTolerations},
		{podtolerations.PluginName, off, "sets and restricts the tolerations of pods by annotations of their namespace.", podtolerations.Register},
		{eventratelimit.PluginName, off, "limits the rate of events; needs a configuration.", eventratelimit.Register},
		{extendedresource.PluginName, off, "adds tolerations for the extended resources that a pod requests.", extendedresource.Register},
		{volumelabel.PluginName, off, "gives volumes a node affinity to the zone and region of their labels (deprecated).", volumelabel.Register},
		{defaultstorageclass.PluginName, on, "sets the default StorageClass of claims that name none.", defaultstorageclass.Register},
		{storageprotection.PluginName, on, "protects claims and volumes in use from deletion, by a finalizer.", storageprotection.Register},
		{podgroupprotection.PluginName, on, "protects PodGroups with active pods from deletion, by a finalizer.", podgroupprotection.Register},
		{ownerreferences.PluginName, off, "requires permissions on the object and its owners for changes of owner references.", ownerreferences.Register},
		{claimresize.PluginName, on, "lets claims grow only if their StorageClass allows it.", claimresize.Register},
		{runtimeclass.PluginName, on, "adds the overhead, node selector and tolerations of their RuntimeClass to pods.", runtimeclass.Register},
		{certificates.ApprovalName, on, "requires the permission `approve` on the signer for approving certificate signing requests.", certificates.RegisterApproval},
		{certificates.SigningName, on, "requires the permission `sign` on the signer for issuing certificates.", certificates.RegisterSigning},
		{certificates.AttestName, on, "requires the permission `attest` on the signer for its ClusterTrustBundles.", certificates.RegisterAttest},
		{certificates.SubjectName, on, "refuses requests for client certificates of the group `system:masters`.", certificates.RegisterSubject},
		{defaultingressclass.PluginName, on, "sets the default IngressClass of ingresses that name none.", defaultingressclass.Register},
		{externalips.PluginName, off, "refuses new external IPs of services.", externalips.Register},
		{topologylabels.PluginName, on, "gives pods the zone and region of their node as labels, at release 1.35 and later.", topologyLabels},
		{nodefeatures.PluginName, on, "refuses updates of pods that need features which their node does not declare, at release 1.36 and later.", nodeFeatures},
		{podresize.PluginName, on, "refuses to resize pods to more than their node has, at release 1.36 and later.", podResize},
		{mutatingpolicy.PluginName, on, "evaluates MutatingAdmissionPolicies.", nil},
		{mutatingwebhook.PluginName, on, "calls the webhooks of MutatingWebhookConfigurations.", nil},
		{validatingpolicy.PluginName, on, "evaluates ValidatingAdmissionPolicies.", nil},
		{validatingwebhook.PluginName, on, "calls the webhooks of ValidatingWebhookConfigurations.", nil},
		{resourcequota.PluginName, on, "refuses what would exceed a ResourceQuota, and adds what it admits to the quota's usage.", resourceQuota},
		{always.DenyName, off, "refuses everything (deprecated).", always.RegisterDeny},
	}
}
