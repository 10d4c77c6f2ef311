package podspec

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Reference names an object in the namespace of a pod that the pod refers to.
type Reference struct {
	Kind ReferenceKind
	Name string
}

// ReferenceKind is the kind of an object that pods refer to.
type ReferenceKind uint8

// The kinds of objects that pods refer to.
const (
	ConfigMap ReferenceKind = iota
	Secret
	PersistentVolumeClaim
	ServiceAccount
	// ResourceClaim is of the group resource.k8s.io; [ResourceClaims] yields those of a pod.
	ResourceClaim
)

// Resource returns the resource of the kind. All that [References] yields are in the core
// group.
func (k ReferenceKind) Resource() string {
	return [...]string{"configmaps", "secrets", "persistentvolumeclaims", "serviceaccounts", "resourceclaims"}[k]
}

// ResourceClaims yields the resource claims of a pod. Its status has the names of those that
// were made of templates, and of the one that was made for its extended resources.
func ResourceClaims(pod *corev1.Pod) iter.Seq[Reference] {
	return func(yield func(Reference) bool) {
		for _, c := range pod.Spec.ResourceClaims {
			if c.ResourceClaimName != nil && !yield(Reference{ResourceClaim, *c.ResourceClaimName}) {
				return
			}
		}
		for _, c := range pod.Status.ResourceClaimStatuses {
			if c.ResourceClaimName != nil && !yield(Reference{ResourceClaim, *c.ResourceClaimName}) {
				return
			}
		}
		if s := pod.Status.ExtendedResourceClaimStatus; s != nil && s.ResourceClaimName != "" {
			yield(Reference{ResourceClaim, s.ResourceClaimName})
		}
	}
}

// IsClaimed reports whether a container gets an extended resource as devices of the claim that
// was made for those of the pod (KEP-5004), and not from a device plugin.
func IsClaimed(pod *corev1.Pod, container string, name corev1.ResourceName) bool {
	s := pod.Status.ExtendedResourceClaimStatus
	return s != nil && slices.ContainsFunc(s.RequestMappings, func(m corev1.ContainerExtendedResourceRequest) bool {
		return m.ContainerName == container && m.ResourceName == string(name)
	})
}

// References yields the objects that a pod refers to: its service account, pull
// secrets, variables of all containers, volumes and secrets of volumes' drivers. An
// ephemeral volume's claim has the name <pod>-<volume> (KEP-1698). An object may come
// several times.
func References(pod *corev1.Pod) iter.Seq[Reference] {
	return func(yield func(Reference) bool) {
		r := referrer{yield: yield}
		r.add(ServiceAccount, pod.Spec.ServiceAccountName)
		for _, s := range pod.Spec.ImagePullSecrets {
			r.add(Secret, s.Name)
		}
		for _, c := range All(&pod.Spec) {
			r.addVariables(c.Env, c.EnvFrom)
		}
		for i := range pod.Spec.Volumes {
			v := &pod.Spec.Volumes[i]
			if v.Ephemeral != nil {
				r.add(PersistentVolumeClaim, pod.Name+"-"+v.Name)
			}
			r.addVolume(&v.VolumeSource)
		}
	}
}

// RefersToSecret reports whether a PodSpec refers to a secret: as pull secret, in
// a variable of a container, in a volume or for a volume's driver.
func RefersToSecret(spec *corev1.PodSpec) bool {
	for ref := range References(&corev1.Pod{Spec: *spec}) {
		if ref.Kind == Secret {
			return true
		}
	}
	return false
}

// referrer yields references until the loop over them ends.
type referrer struct {
	yield func(Reference) bool
	done  bool
}

func (r *referrer) add(kind ReferenceKind, name string) {
	if name != "" && !r.done {
		r.done = !r.yield(Reference{kind, name})
	}
}

func (r *referrer) addLocal(kind ReferenceKind, ref *corev1.LocalObjectReference) {
	if ref != nil {
		r.add(kind, ref.Name)
	}
}

func (r *referrer) addVariables(env []corev1.EnvVar, from []corev1.EnvFromSource) {
	for i := range from {
		if s := from[i].ConfigMapRef; s != nil {
			r.add(ConfigMap, s.Name)
		}
		if s := from[i].SecretRef; s != nil {
			r.add(Secret, s.Name)
		}
	}
	for i := range env {
		if env[i].ValueFrom == nil {
			continue
		}
		if s := env[i].ValueFrom.ConfigMapKeyRef; s != nil {
			r.add(ConfigMap, s.Name)
		}
		if s := env[i].ValueFrom.SecretKeyRef; s != nil {
			r.add(Secret, s.Name)
		}
	}
}

func (r *referrer) addVolume(v *corev1.VolumeSource) {
	switch {
	case v.ConfigMap != nil:
		r.add(ConfigMap, v.ConfigMap.Name)
	case v.Secret != nil:
		r.add(Secret, v.Secret.SecretName)
	case v.PersistentVolumeClaim != nil:
		r.add(PersistentVolumeClaim, v.PersistentVolumeClaim.ClaimName)
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			if s := v.Projected.Sources[i].ConfigMap; s != nil {
				r.add(ConfigMap, s.Name)
			}
			if s := v.Projected.Sources[i].Secret; s != nil {
				r.add(Secret, s.Name)
			}
		}
	default:
		r.addDriver(v)
	}
}

// addDriver yields the secret of a volume's driver.
func (r *referrer) addDriver(v *corev1.VolumeSource) {
	switch {
	case v.AzureFile != nil:
		r.add(Secret, v.AzureFile.SecretName)
	case v.CephFS != nil:
		r.addLocal(Secret, v.CephFS.SecretRef)
	case v.Cinder != nil:
		r.addLocal(Secret, v.Cinder.SecretRef)
	case v.CSI != nil:
		r.addLocal(Secret, v.CSI.NodePublishSecretRef)
	case v.FlexVolume != nil:
		r.addLocal(Secret, v.FlexVolume.SecretRef)
	case v.ISCSI != nil:
		r.addLocal(Secret, v.ISCSI.SecretRef)
	case v.RBD != nil:
		r.addLocal(Secret, v.RBD.SecretRef)
	case v.ScaleIO != nil:
		r.addLocal(Secret, v.ScaleIO.SecretRef)
	case v.StorageOS != nil:
		r.addLocal(Secret, v.StorageOS.SecretRef)
	}
}
