package options

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// absentPlugins are the admission plugins of Kubernetes 1.28 and later that
// svc does not have.
var absentPlugins = []string{
	"AlwaysAdmit", "AlwaysDeny", "AlwaysPullImages", "CertificateApproval", "CertificateSigning", "CertificateSubjectRestriction",
	"ClusterTrustBundleAttest", "DefaultIngressClass", "DefaultStorageClass", "DenyServiceExternalIPs", "EventRateLimit",
	"ExtendedResourceToleration", "ImagePolicyWebhook", "JobValidation", "LimitPodHardAntiAffinityTopology", "NamespaceAutoProvision",
	"NamespaceExists", "NodeDeclaredFeatureValidator", "OwnerReferencesPermissionEnforcement", "PersistentVolumeClaimResize",
	"PersistentVolumeLabel", "PodGroupProtection", "PodGroupWorkloadExists", "PodNodeSelector", "PodResizeValidator", "PodSecurity", "PodTolerationRestriction", "PodTopologyLabels",
	"RuntimeClass", "SecurityContextDeny", "StorageObjectInUseProtection", "TaintNodesByCondition",
}

// disabledPlugins is the value of --disable-admission-plugins. It accepts absent plugins and ignores them.
type disabledPlugins struct{ pflag.Value }

// Set implements pflag.Value.
func (d disabledPlugins) Set(names string) error {
	present := slices.DeleteFunc(strings.Split(names, ","), func(name string) bool { return slices.Contains(absentPlugins, name) })
	return d.Value.Set(strings.Join(present, ","))
}

// addAdmissionFlags adds the library's flags and makes
// --disable-admission-plugins take the names of absent plugins too.
func (o *Options) addAdmissionFlags(fs *pflag.FlagSet) {
	o.Admission.AddFlags(fs)
	disable := fs.Lookup("disable-admission-plugins")
	disable.Value = disabledPlugins{disable.Value}
	disable.Usage += " Kubernetes' other plugins, such as AlwaysPullImages, may be named, too: svc does not have them."
}
