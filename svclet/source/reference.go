package source

import (
	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/apis/podspec"
)

// apiReference returns which API object the pod refers to, "" if none. Static pods
// must not refer to any, because they run without an API server.
func apiReference(spec *corev1.PodSpec) string {
	switch {
	case spec.ServiceAccountName != "":
		return "serviceaccounts"
	case len(spec.ImagePullSecrets) > 0 || anyEnv(spec, envHasSecret, fromHasSecret):
		return "secrets"
	case anyEnv(spec, envHasConfigMap, fromHasConfigMap):
		return "configmaps"
	case len(spec.ResourceClaims) > 0:
		return "resourceclaims"
	}
	for i := range spec.Volumes {
		if what := volumeReference(&spec.Volumes[i].VolumeSource); what != "" {
			return what
		}
	}
	return ""
}

func envHasSecret(s *corev1.EnvVarSource) bool      { return s.SecretKeyRef != nil }
func fromHasSecret(s *corev1.EnvFromSource) bool    { return s.SecretRef != nil }
func envHasConfigMap(s *corev1.EnvVarSource) bool   { return s.ConfigMapKeyRef != nil }
func fromHasConfigMap(s *corev1.EnvFromSource) bool { return s.ConfigMapRef != nil }

// anyEnv reports whether a variable of any container satisfies one of the
// functions.
func anyEnv(spec *corev1.PodSpec, env func(*corev1.EnvVarSource) bool, from func(*corev1.EnvFromSource) bool) bool {
	of := func(vars []corev1.EnvVar, sources []corev1.EnvFromSource) bool {
		for i := range vars {
			if vars[i].ValueFrom != nil && env(vars[i].ValueFrom) {
				return true
			}
		}
		for i := range sources {
			if from(&sources[i]) {
				return true
			}
		}
		return false
	}
	for _, c := range podspec.NonEphemeral(spec) {
		if of(c.Env, c.EnvFrom) {
			return true
		}
	}
	return false
}

func volumeReference(v *corev1.VolumeSource) string {
	switch {
	case v.ConfigMap != nil:
		return "configmaps (via configmap volumes)"
	case v.Secret != nil:
		return "secrets (via secret volumes)"
	case v.CSI != nil:
		return "csidrivers (via CSI volumes)"
	case v.Glusterfs != nil:
		return "endpoints (via glusterFS volumes)"
	case v.PersistentVolumeClaim != nil:
		return "persistentvolumeclaims"
	case v.Ephemeral != nil:
		return "persistentvolumeclaims (via ephemeral volumes)"
	case v.AzureFile != nil:
		return "secrets (via azureFile volumes)"
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			if what := projectedReference(&v.Projected.Sources[i]); what != "" {
				return what
			}
		}
	case volumeHasSecret(v):
		return "secrets"
	}
	return ""
}

// volumeHasSecret reports whether the volume's driver gets a secret.
func volumeHasSecret(v *corev1.VolumeSource) bool {
	switch {
	case v.CephFS != nil:
		return v.CephFS.SecretRef != nil
	case v.Cinder != nil:
		return v.Cinder.SecretRef != nil
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
	default:
		return false
	}
}

func projectedReference(p *corev1.VolumeProjection) string {
	switch {
	case p.ConfigMap != nil:
		return "configmaps (via projected volumes)"
	case p.Secret != nil:
		return "secrets (via projected volumes)"
	case p.ServiceAccountToken != nil:
		return "serviceaccounts (via projected volumes)"
	case p.ClusterTrustBundle != nil:
		return "clustertrustbundles"
	case p.PodCertificate != nil:
		return "podcertificates"
	default:
		return ""
	}
}
