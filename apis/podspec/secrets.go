package podspec

import corev1 "k8s.io/api/core/v1"

// RefersToSecret reports whether a PodSpec refers to a secret: as pull secret, in
// a variable of a container, in a volume or for a volume's driver.
func RefersToSecret(spec *corev1.PodSpec) bool {
	if len(spec.ImagePullSecrets) > 0 {
		return true
	}
	for _, c := range All(spec) {
		for i := range c.EnvFrom {
			if c.EnvFrom[i].SecretRef != nil {
				return true
			}
		}
		for i := range c.Env {
			if from := c.Env[i].ValueFrom; from != nil && from.SecretKeyRef != nil {
				return true
			}
		}
	}
	for i := range spec.Volumes {
		if volumeRefersToSecret(&spec.Volumes[i].VolumeSource) {
			return true
		}
	}
	return false
}

func volumeRefersToSecret(v *corev1.VolumeSource) bool {
	switch {
	case v.Secret != nil, v.AzureFile != nil:
		return true
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			if v.Projected.Sources[i].Secret != nil {
				return true
			}
		}
		return false
	case v.CephFS != nil:
		return v.CephFS.SecretRef != nil
	case v.Cinder != nil:
		return v.Cinder.SecretRef != nil
	case v.CSI != nil:
		return v.CSI.NodePublishSecretRef != nil
	case v.FlexVolume != nil:
		return v.FlexVolume.SecretRef != nil
	case v.ISCSI != nil:
		return v.ISCSI.SecretRef != nil
	case v.RBD != nil:
		return v.RBD.SecretRef != nil
	case v.ScaleIO != nil:
		return v.ScaleIO.SecretRef != nil
	case v.StorageOS != nil:
		return v.StorageOS.SecretRef != nil
	}
	return false
}
