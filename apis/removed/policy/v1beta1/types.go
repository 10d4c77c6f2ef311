package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/apis/removed/wire"
)

// SchemeGroupVersion is the version of the types.
var SchemeGroupVersion = schema.GroupVersion{Group: "policy", Version: "v1beta1"}

// AddToScheme registers the types.
func AddToScheme(s *runtime.Scheme) {
	s.AddKnownTypes(SchemeGroupVersion, &PodSecurityPolicy{}, &PodSecurityPolicyList{})
}

// PodSecurityPolicy has the rules for pods of the users that may use it.
type PodSecurityPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	// The rules.
	// +optional
	Spec PodSecurityPolicySpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`
}

// PodSecurityPolicyList is a list of policies.
type PodSecurityPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	// The policies.
	Items []PodSecurityPolicy `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// FSType is a kind of volume, by the name of its field in a pod's volume, or *.
type FSType string

// The strategies.
type (
	// SELinuxStrategy is MustRunAs or RunAsAny.
	SELinuxStrategy string
	// RunAsUserStrategy is MustRunAs, MustRunAsNonRoot or RunAsAny.
	RunAsUserStrategy string
	// RunAsGroupStrategy is MayRunAs, MustRunAs or RunAsAny.
	RunAsGroupStrategy string
	// FSGroupStrategyType is MayRunAs, MustRunAs or RunAsAny.
	FSGroupStrategyType string
	// SupplementalGroupsStrategyType is MayRunAs, MustRunAs or RunAsAny.
	SupplementalGroupsStrategyType string
)

// PodSecurityPolicySpec are the rules for pods.
type PodSecurityPolicySpec struct {
	// Whether containers may be privileged.
	// +optional
	Privileged bool `json:"privileged,omitempty" protobuf:"varint,1,opt,name=privileged"`
	// The capabilities that containers get by default, unless they drop them.
	// +optional
	DefaultAddCapabilities []corev1.Capability `json:"defaultAddCapabilities,omitempty" protobuf:"bytes,2,rep,name=defaultAddCapabilities"`
	// The capabilities that containers must drop.
	// +optional
	RequiredDropCapabilities []corev1.Capability `json:"requiredDropCapabilities,omitempty" protobuf:"bytes,3,rep,name=requiredDropCapabilities"`
	// The capabilities that containers may add; * is all.
	// +optional
	AllowedCapabilities []corev1.Capability `json:"allowedCapabilities,omitempty" protobuf:"bytes,4,rep,name=allowedCapabilities"`
	// The kinds of volumes that pods may have; * is all.
	// +optional
	Volumes []FSType `json:"volumes,omitempty" protobuf:"bytes,5,rep,name=volumes"`
	// Whether pods may use the host's network.
	// +optional
	HostNetwork bool `json:"hostNetwork,omitempty" protobuf:"varint,6,opt,name=hostNetwork"`
	// The ports of the host that pods may use.
	// +optional
	HostPorts []HostPortRange `json:"hostPorts,omitempty" protobuf:"bytes,7,rep,name=hostPorts"`
	// Whether pods may use the host's process IDs.
	// +optional
	HostPID bool `json:"hostPID,omitempty" protobuf:"varint,8,opt,name=hostPID"`
	// Whether pods may use the host's IPC.
	// +optional
	HostIPC bool `json:"hostIPC,omitempty" protobuf:"varint,9,opt,name=hostIPC"`
	// The labels that containers may have.
	SELinux SELinuxStrategyOptions `json:"seLinux" protobuf:"bytes,10,opt,name=seLinux"`
	// The users that containers may run as.
	RunAsUser RunAsUserStrategyOptions `json:"runAsUser" protobuf:"bytes,11,opt,name=runAsUser"`
	// The groups that containers may run as; defaults to all.
	// +optional
	RunAsGroup *RunAsGroupStrategyOptions `json:"runAsGroup,omitempty" protobuf:"bytes,22,opt,name=runAsGroup"`
	// The supplemental groups that pods may have.
	SupplementalGroups SupplementalGroupsStrategyOptions `json:"supplementalGroups" protobuf:"bytes,12,opt,name=supplementalGroups"`
	// The groups that volumes may have.
	FSGroup FSGroupStrategyOptions `json:"fsGroup" protobuf:"bytes,13,opt,name=fsGroup"`
	// Whether containers must have a read-only root file system.
	// +optional
	ReadOnlyRootFilesystem bool `json:"readOnlyRootFilesystem,omitempty" protobuf:"varint,14,opt,name=readOnlyRootFilesystem"`
	// Whether processes may gain privileges by default.
	// +optional
	DefaultAllowPrivilegeEscalation *bool `json:"defaultAllowPrivilegeEscalation,omitempty" protobuf:"varint,15,opt,name=defaultAllowPrivilegeEscalation"`
	// Whether processes may gain privileges; defaults to true.
	// +optional
	AllowPrivilegeEscalation *bool `json:"allowPrivilegeEscalation,omitempty" protobuf:"varint,16,opt,name=allowPrivilegeEscalation"`
	// The paths of the host that pods may mount; empty is all.
	// +optional
	AllowedHostPaths []AllowedHostPath `json:"allowedHostPaths,omitempty" protobuf:"bytes,17,rep,name=allowedHostPaths"`
	// The drivers of flex volumes that pods may use; empty is all.
	// +optional
	AllowedFlexVolumes []AllowedFlexVolume `json:"allowedFlexVolumes,omitempty" protobuf:"bytes,18,rep,name=allowedFlexVolumes"`
	// The CSI drivers of inline volumes that pods may use; empty is all.
	// +optional
	AllowedCSIDrivers []AllowedCSIDriver `json:"allowedCSIDrivers,omitempty" protobuf:"bytes,23,rep,name=allowedCSIDrivers"`
	// The unsafe sysctls that pods may set; a trailing * stands for any suffix.
	// +optional
	AllowedUnsafeSysctls []string `json:"allowedUnsafeSysctls,omitempty" protobuf:"bytes,19,rep,name=allowedUnsafeSysctls"`
	// The sysctls that pods may not set; a trailing * stands for any suffix.
	// +optional
	ForbiddenSysctls []string `json:"forbiddenSysctls,omitempty" protobuf:"bytes,20,rep,name=forbiddenSysctls"`
	// The types of proc mounts that containers may have; empty is the default type only.
	// +optional
	AllowedProcMountTypes []corev1.ProcMountType `json:"allowedProcMountTypes,omitempty" protobuf:"bytes,21,opt,name=allowedProcMountTypes"`
	// The runtime classes that pods may have; unset is all.
	// +optional
	RuntimeClass *RuntimeClassStrategyOptions `json:"runtimeClass,omitempty" protobuf:"bytes,24,opt,name=runtimeClass"`
}

// AllowedHostPath is a path of the host that pods may mount.
type AllowedHostPath struct {
	// The prefix of the path, without a trailing slash.
	// +optional
	PathPrefix string `json:"pathPrefix,omitempty" protobuf:"bytes,1,rep,name=pathPrefix"`
	// Whether it may be mounted read-only only.
	// +optional
	ReadOnly bool `json:"readOnly,omitempty" protobuf:"varint,2,opt,name=readOnly"`
}

// AllowedFlexVolume is a driver of flex volumes that pods may use.
type AllowedFlexVolume struct {
	// The name of the driver.
	Driver string `json:"driver" protobuf:"bytes,1,opt,name=driver"`
}

// AllowedCSIDriver is a CSI driver of inline volumes that pods may use.
type AllowedCSIDriver struct {
	// The registered name of the driver.
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`
}

// HostPortRange is a range of ports, both ends included.
type HostPortRange struct {
	// The first port.
	Min int32 `json:"min" protobuf:"varint,1,opt,name=min"`
	// The last port.
	Max int32 `json:"max" protobuf:"varint,2,opt,name=max"`
}

// IDRange is a range of IDs, both ends included.
type IDRange struct {
	// The first ID.
	Min int64 `json:"min" protobuf:"varint,1,opt,name=min"`
	// The last ID.
	Max int64 `json:"max" protobuf:"varint,2,opt,name=max"`
}

// SELinuxStrategyOptions is how labels are allowed.
type SELinuxStrategyOptions struct {
	// MustRunAs or RunAsAny.
	Rule SELinuxStrategy `json:"rule" protobuf:"bytes,1,opt,name=rule"`
	// The required labels.
	// +optional
	SELinuxOptions *corev1.SELinuxOptions `json:"seLinuxOptions,omitempty" protobuf:"bytes,2,opt,name=seLinuxOptions"`
}

// RunAsUserStrategyOptions is how users are allowed.
type RunAsUserStrategyOptions struct {
	// MustRunAs, MustRunAsNonRoot or RunAsAny.
	Rule RunAsUserStrategy `json:"rule" protobuf:"bytes,1,opt,name=rule"`
	// The allowed users, for MustRunAs.
	// +optional
	Ranges []IDRange `json:"ranges,omitempty" protobuf:"bytes,2,rep,name=ranges"`
}

// RunAsGroupStrategyOptions is how groups are allowed.
type RunAsGroupStrategyOptions struct {
	// MayRunAs, MustRunAs or RunAsAny.
	Rule RunAsGroupStrategy `json:"rule" protobuf:"bytes,1,opt,name=rule"`
	// The allowed groups.
	// +optional
	Ranges []IDRange `json:"ranges,omitempty" protobuf:"bytes,2,rep,name=ranges"`
}

// FSGroupStrategyOptions is how groups of volumes are allowed.
type FSGroupStrategyOptions struct {
	// MayRunAs, MustRunAs or RunAsAny.
	// +optional
	Rule FSGroupStrategyType `json:"rule,omitempty" protobuf:"bytes,1,opt,name=rule"`
	// The allowed groups.
	// +optional
	Ranges []IDRange `json:"ranges,omitempty" protobuf:"bytes,2,rep,name=ranges"`
}

// SupplementalGroupsStrategyOptions is how supplemental groups are allowed.
type SupplementalGroupsStrategyOptions struct {
	// MayRunAs, MustRunAs or RunAsAny.
	// +optional
	Rule SupplementalGroupsStrategyType `json:"rule,omitempty" protobuf:"bytes,1,opt,name=rule"`
	// The allowed groups.
	// +optional
	Ranges []IDRange `json:"ranges,omitempty" protobuf:"bytes,2,rep,name=ranges"`
}

// RuntimeClassStrategyOptions is the runtime classes that pods may have.
type RuntimeClassStrategyOptions struct {
	// The names of the classes; * is all.
	AllowedRuntimeClassNames []string `json:"allowedRuntimeClassNames" protobuf:"bytes,1,rep,name=allowedRuntimeClassNames"`
	// The class that pods get which name none.
	// +optional
	DefaultRuntimeClassName *string `json:"defaultRuntimeClassName,omitempty" protobuf:"bytes,2,opt,name=defaultRuntimeClassName"`
}

// DeepCopyObject implements runtime.Object.
func (p *PodSecurityPolicy) DeepCopyObject() runtime.Object { return wire.Copy(p) }

// Marshal returns the object in protobuf.
func (p *PodSecurityPolicy) Marshal() ([]byte, error) { return wire.Marshal(p) }

// Unmarshal sets the object from protobuf.
func (p *PodSecurityPolicy) Unmarshal(data []byte) error { return wire.Unmarshal(data, p) }

// Reset empties the object.
func (p *PodSecurityPolicy) Reset() { *p = PodSecurityPolicy{} }

// DeepCopyObject implements runtime.Object.
func (l *PodSecurityPolicyList) DeepCopyObject() runtime.Object { return wire.Copy(l) }

// Marshal returns the list in protobuf.
func (l *PodSecurityPolicyList) Marshal() ([]byte, error) { return wire.Marshal(l) }

// Unmarshal sets the list from protobuf.
func (l *PodSecurityPolicyList) Unmarshal(data []byte) error { return wire.Unmarshal(data, l) }

// Reset empties the list.
func (l *PodSecurityPolicyList) Reset() { *l = PodSecurityPolicyList{} }

// OpenAPIModelName returns the name of the type in OpenAPI documents.
func (PodSecurityPolicy) OpenAPIModelName() string {
	return "io.k8s.api.policy.v1beta1.PodSecurityPolicy"
}

// OpenAPIModelName returns the name of the type in OpenAPI documents.
func (PodSecurityPolicyList) OpenAPIModelName() string {
	return "io.k8s.api.policy.v1beta1.PodSecurityPolicyList"
}

// OpenAPIModelName returns the name of the type in OpenAPI documents.
func (PodSecurityPolicySpec) OpenAPIModelName() string {
	return "io.k8s.api.policy.v1beta1.PodSecurityPolicySpec"
}

// OpenAPIModelName returns the name of the type in OpenAPI documents.
func (AllowedHostPath) OpenAPIModelName() string { return "io.k8s.api.policy.v1beta1.AllowedHostPath" }

// OpenAPIModelName returns the name of the type in OpenAPI documents.
func (AllowedFlexVolume) OpenAPIModelName() string {
	return "io.k8s.api.policy.v1beta1.AllowedFlexVolume"
}

// OpenAPIModelName returns the name of the type in OpenAPI documents.
func (AllowedCSIDriver) OpenAPIModelName() string {
	return "io.k8s.api.policy.v1beta1.AllowedCSIDriver"
}

// OpenAPIModelName returns the name of the type in OpenAPI documents.
func (HostPortRange) OpenAPIModelName() string { return "io.k8s.api.policy.v1beta1.HostPortRange" }

// OpenAPIModelName returns the name of the type in OpenAPI documents.
func (IDRange) OpenAPIModelName() string { return "io.k8s.api.policy.v1beta1.IDRange" }

// OpenAPIModelName returns the name of the type in OpenAPI documents.
func (SELinuxStrategyOptions) OpenAPIModelName() string {
	return "io.k8s.api.policy.v1beta1.SELinuxStrategyOptions"
}

// OpenAPIModelName returns the name of the type in OpenAPI documents.
func (RunAsUserStrategyOptions) OpenAPIModelName() string {
	return "io.k8s.api.policy.v1beta1.RunAsUserStrategyOptions"
}

// OpenAPIModelName returns the name of the type in OpenAPI documents.
func (RunAsGroupStrategyOptions) OpenAPIModelName() string {
	return "io.k8s.api.policy.v1beta1.RunAsGroupStrategyOptions"
}

// OpenAPIModelName returns the name of the type in OpenAPI documents.
func (FSGroupStrategyOptions) OpenAPIModelName() string {
	return "io.k8s.api.policy.v1beta1.FSGroupStrategyOptions"
}

// OpenAPIModelName returns the name of the type in OpenAPI documents.
func (SupplementalGroupsStrategyOptions) OpenAPIModelName() string {
	return "io.k8s.api.policy.v1beta1.SupplementalGroupsStrategyOptions"
}

// OpenAPIModelName returns the name of the type in OpenAPI documents.
func (RuntimeClassStrategyOptions) OpenAPIModelName() string {
	return "io.k8s.api.policy.v1beta1.RuntimeClassStrategyOptions"
}

// APILifecycleIntroduced returns the release that introduced the type.
func (*PodSecurityPolicy) APILifecycleIntroduced() (major, minor int) { return 1, 10 }

// APILifecycleDeprecated returns the release that deprecated the type.
func (*PodSecurityPolicy) APILifecycleDeprecated() (major, minor int) { return 1, 21 }

// APILifecycleRemoved returns the release that removed the type.
func (*PodSecurityPolicy) APILifecycleRemoved() (major, minor int) { return 1, 25 }

// APILifecycleIntroduced returns the release that introduced the type.
func (*PodSecurityPolicyList) APILifecycleIntroduced() (major, minor int) { return 1, 10 }

// APILifecycleDeprecated returns the release that deprecated the type.
func (*PodSecurityPolicyList) APILifecycleDeprecated() (major, minor int) { return 1, 21 }

// APILifecycleRemoved returns the release that removed the type.
func (*PodSecurityPolicyList) APILifecycleRemoved() (major, minor int) { return 1, 25 }
