package podspec

import (
	"maps"
	"time"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource"
)

// DefaultTemplate sets the defaults of a template of pods.
func DefaultTemplate(t *corev1.PodTemplateSpec) {
	DropInitContainerAnnotations(t.Annotations)
	Default(&t.Spec)
}

// DropInitContainerAnnotations deletes the annotations of a pod or a template in which
// releases before 1.8 kept init containers and their statuses. Kubernetes deletes them
// when it decodes an object, and since 1.37 when it writes one.
func DropInitContainerAnnotations(annotations map[string]string) {
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		switch key {
		case "pod.alpha.kubernetes.io/init-containers", "pod.alpha.kubernetes.io/init-container-statuses",
			"pod.beta.kubernetes.io/init-containers", "pod.beta.kubernetes.io/init-container-statuses":
			return true
		}
		return false
	})
}

// Default sets the defaults of the PodSpec of a pod or a template. Defaults that
// only pods have (requests from limits, host ports) are not among them.
func Default(spec *corev1.PodSpec) {
	resource.FillEmpty(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	resource.FillEmpty(&spec.DNSPolicy, corev1.DNSClusterFirst)
	resource.FillEmpty(&spec.SchedulerName, corev1.DefaultSchedulerName)
	resource.Fill(&spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	// serviceAccount is the deprecated name of serviceAccountName; clients read
	// either.
	resource.FillEmpty(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	for i := range spec.Volumes {
		DefaultVolume(&spec.Volumes[i].VolumeSource)
	}
	for _, c := range All(spec) {
		defaultContainer(c)
	}
	RoundUpToMilli(spec.Overhead)
	if spec.Resources != nil {
		DefaultResources(spec.Resources)
	}
}

func defaultContainer(c *corev1.Container) {
	if c.ImagePullPolicy == "" { // stored objects have one: the image need not be parsed
		c.ImagePullPolicy = pullPolicy(c.Image)
	}
	resource.FillEmpty(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	resource.FillEmpty(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		resource.FillEmpty(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for _, env := range c.Env {
		if env.ValueFrom == nil {
			continue
		}
		defaultFieldRef(env.ValueFrom.FieldRef)
		if env.ValueFrom.FileKeyRef != nil {
			resource.Fill(&env.ValueFrom.FileKeyRef.Optional, false)
		}
	}
	DefaultResources(&c.Resources)
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
		return corev1.PullIfNotPresent // validation reports the invalid image
	}
	if tagged, ok := named.(reference.Tagged); ok && tagged.Tag() == "latest" || reference.IsNameOnly(named) {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func defaultProbe(p *corev1.Probe) {
	resource.FillEmpty(&p.TimeoutSeconds, 1)
	resource.FillEmpty(&p.PeriodSeconds, 10)
	resource.FillEmpty(&p.SuccessThreshold, 1)
	resource.FillEmpty(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		resource.Fill(&p.GRPC.Service, "")
	}
}

func defaultHTTPGet(h *corev1.HTTPGetAction) {
	if h != nil {
		resource.FillEmpty(&h.Path, "/")
		resource.FillEmpty(&h.Scheme, corev1.URISchemeHTTP)
	}
}

func defaultFieldRef(ref *corev1.ObjectFieldSelector) {
	if ref != nil {
		resource.FillEmpty(&ref.APIVersion, "v1")
	}
}

// DefaultVolume sets the defaults of a volume: without any source it is an emptyDir.
func DefaultVolume(v *corev1.VolumeSource) {
	if ptr.AllPtrFieldsNil(v) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	switch {
	case v.HostPath != nil:
		resource.Fill(&v.HostPath.Type, corev1.HostPathUnset)
	case v.Secret != nil:
		resource.Fill(&v.Secret.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	case v.ConfigMap != nil:
		resource.Fill(&v.ConfigMap.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	case v.DownwardAPI != nil:
		resource.Fill(&v.DownwardAPI.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		defaultDownwardFiles(v.DownwardAPI.Items)
	case v.Projected != nil:
		defaultProjected(v.Projected)
	case v.ISCSI != nil:
		resource.FillEmpty(&v.ISCSI.ISCSIInterface, "default")
	case v.RBD != nil:
		resource.FillEmpty(&v.RBD.RBDPool, "rbd")
		resource.FillEmpty(&v.RBD.RadosUser, "admin")
		resource.FillEmpty(&v.RBD.Keyring, "/etc/ceph/keyring")
	case v.AzureDisk != nil:
		resource.Fill(&v.AzureDisk.CachingMode, corev1.AzureDataDiskCachingReadWrite)
		resource.Fill(&v.AzureDisk.FSType, "ext4")
		resource.Fill(&v.AzureDisk.ReadOnly, false)
		resource.Fill(&v.AzureDisk.Kind, corev1.AzureSharedBlobDisk)
	case v.ScaleIO != nil:
		resource.FillEmpty(&v.ScaleIO.StorageMode, "ThinProvisioned")
		resource.FillEmpty(&v.ScaleIO.FSType, "xfs")
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		DefaultClaimSpec(&v.Ephemeral.VolumeClaimTemplate.Spec)
	case v.Image != nil:
		resource.FillEmpty(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	}
}

func defaultProjected(p *corev1.ProjectedVolumeSource) {
	resource.Fill(&p.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
	for _, source := range p.Sources {
		if source.DownwardAPI != nil {
			defaultDownwardFiles(source.DownwardAPI.Items)
		}
		if source.ServiceAccountToken != nil {
			resource.Fill(&source.ServiceAccountToken.ExpirationSeconds, int64(time.Hour/time.Second))
		}
	}
}

func defaultDownwardFiles(files []corev1.DownwardAPIVolumeFile) {
	for _, file := range files {
		defaultFieldRef(file.FieldRef)
	}
}

// DefaultResources rounds limits and requests up to a thousandth.
func DefaultResources(r *corev1.ResourceRequirements) {
	RoundUpToMilli(r.Limits)
	RoundUpToMilli(r.Requests)
}

// RoundUpToMilli rounds quantities up to a thousandth, the smallest unit of the
// API.
func RoundUpToMilli(list corev1.ResourceList) {
	for name, amount := range list {
		if !amount.RoundUp(quantity.Milli) {
			list[name] = amount
		}
	}
}
