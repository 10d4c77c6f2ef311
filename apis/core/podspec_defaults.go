package core

import (
	"time"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// DefaultPodSpec fills the unset fields of a pod spec, be it a pod's or a
// template's. What only a pod gets (requests from limits, host ports) is not
// among them, so that a template keeps saying what its author said.
func DefaultPodSpec(spec *corev1.PodSpec) {
	setIfEmpty(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	setIfEmpty(&spec.DNSPolicy, corev1.DNSClusterFirst)
	setIfEmpty(&spec.SchedulerName, corev1.DefaultSchedulerName)
	setIfNil(&spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	// The first version of the API knew the account by another name, and
	// clients read either.
	setIfEmpty(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i].VolumeSource)
	}
	for _, c := range containersOf(spec) {
		defaultContainer(c.Container)
	}
	roundUpToMilli(spec.Overhead)
	if spec.Resources != nil {
		defaultResources(spec.Resources)
	}
}

func defaultContainer(c *corev1.Container) {
	setIfEmpty(&c.ImagePullPolicy, pullPolicy(c.Image))
	setIfEmpty(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	setIfEmpty(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		setIfEmpty(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for _, env := range c.Env {
		if env.ValueFrom == nil {
			continue
		}
		defaultFieldRef(env.ValueFrom.FieldRef)
		if env.ValueFrom.FileKeyRef != nil {
			setIfNil(&env.ValueFrom.FileKeyRef.Optional, false)
		}
	}
	defaultResources(&c.Resources)
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if probe != nil {
			defaultProbe(probe)
		}
	}
	if c.Lifecycle != nil {
		for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				defaultHTTPGet(h.HTTPGet)
			}
		}
	}
}

// pullPolicy is Always for images whose tag is, or defaults to, latest.
func pullPolicy(image string) corev1.PullPolicy {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return corev1.PullIfNotPresent // validation reports the image
	}
	if tagged, ok := named.(reference.Tagged); ok && tagged.Tag() == "latest" || reference.IsNameOnly(named) {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func defaultProbe(p *corev1.Probe) {
	setIfEmpty(&p.TimeoutSeconds, 1)
	setIfEmpty(&p.PeriodSeconds, 10)
	setIfEmpty(&p.SuccessThreshold, 1)
	setIfEmpty(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		setIfNil(&p.GRPC.Service, "")
	}
}

func defaultHTTPGet(h *corev1.HTTPGetAction) {
	if h != nil {
		setIfEmpty(&h.Path, "/")
		setIfEmpty(&h.Scheme, corev1.URISchemeHTTP)
	}
}

func defaultFieldRef(ref *corev1.ObjectFieldSelector) {
	if ref != nil {
		setIfEmpty(&ref.APIVersion, "v1")
	}
}

func defaultVolume(v *corev1.VolumeSource) {
	if ptr.AllPtrFieldsNil(v) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	switch {
	case v.HostPath != nil:
		setIfNil(&v.HostPath.Type, corev1.HostPathUnset)
	case v.Secret != nil:
		setIfNil(&v.Secret.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	case v.ConfigMap != nil:
		setIfNil(&v.ConfigMap.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	case v.DownwardAPI != nil:
		setIfNil(&v.DownwardAPI.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		defaultDownwardFiles(v.DownwardAPI.Items)
	case v.Projected != nil:
		defaultProjected(v.Projected)
	case v.ISCSI != nil:
		setIfEmpty(&v.ISCSI.ISCSIInterface, "default")
	case v.RBD != nil:
		setIfEmpty(&v.RBD.RBDPool, "rbd")
		setIfEmpty(&v.RBD.RadosUser, "admin")
		setIfEmpty(&v.RBD.Keyring, "/etc/ceph/keyring")
	case v.AzureDisk != nil:
		setIfNil(&v.AzureDisk.CachingMode, corev1.AzureDataDiskCachingReadWrite)
		setIfNil(&v.AzureDisk.FSType, "ext4")
		setIfNil(&v.AzureDisk.ReadOnly, false)
		setIfNil(&v.AzureDisk.Kind, corev1.AzureSharedBlobDisk)
	case v.ScaleIO != nil:
		setIfEmpty(&v.ScaleIO.StorageMode, "ThinProvisioned")
		setIfEmpty(&v.ScaleIO.FSType, "xfs")
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		claim := &v.Ephemeral.VolumeClaimTemplate.Spec
		setIfNil(&claim.VolumeMode, corev1.PersistentVolumeFilesystem)
		roundUpToMilli(claim.Resources.Limits)
		roundUpToMilli(claim.Resources.Requests)
	case v.Image != nil:
		setIfEmpty(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	}
}

func defaultProjected(p *corev1.ProjectedVolumeSource) {
	setIfNil(&p.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
	for _, source := range p.Sources {
		if source.DownwardAPI != nil {
			defaultDownwardFiles(source.DownwardAPI.Items)
		}
		if source.ServiceAccountToken != nil {
			setIfNil(&source.ServiceAccountToken.ExpirationSeconds, int64(time.Hour/time.Second))
		}
	}
}

func defaultDownwardFiles(files []corev1.DownwardAPIVolumeFile) {
	for _, file := range files {
		defaultFieldRef(file.FieldRef)
	}
}

func defaultResources(r *corev1.ResourceRequirements) {
	roundUpToMilli(r.Limits)
	roundUpToMilli(r.Requests)
}

// roundUpToMilli rounds quantities up to a thousandth, the finest that the API
// keeps.
func roundUpToMilli(list corev1.ResourceList) {
	for name, quantity := range list {
		if !quantity.RoundUp(resource.Milli) {
			list[name] = quantity
		}
	}
}

func setIfEmpty[T comparable](to *T, value T) {
	var empty T
	if *to == empty {
		*to = value
	}
}

func setIfNil[T any](to **T, value T) {
	if *to == nil {
		*to = &value
	}
}
