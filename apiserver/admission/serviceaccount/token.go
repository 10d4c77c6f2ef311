package serviceaccount

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
)

const (
	// mountPath is where clients in a pod find the token.
	mountPath = "/var/run/secrets/kubernetes.io/serviceaccount"
	// volumePrefix is the prefix of the volume's name.
	volumePrefix = "kube-api-access-"
	// lifetime is that of the token in seconds. The token's issuer recognizes mounted
	// tokens by this unusual number, and extends them.
	lifetime = 60*60 + 7
)

// mountsToken reports whether the pod gets a token. Its own setting has precedence
// over the account's; the default is true.
func mountsToken(account *corev1.ServiceAccount, pod *corev1.Pod) bool {
	if own := pod.Spec.AutomountServiceAccountToken; own != nil {
		return *own
	}
	return ptr.Deref(account.AutomountServiceAccountToken, true)
}

// mountToken mounts the volume with the token into every container that mounts
// nothing at its path. It adds the volume unless the pod has one.
func mountToken(pod *corev1.Pod) {
	name := ""
	for i := range pod.Spec.Volumes {
		if strings.HasPrefix(pod.Spec.Volumes[i].Name, volumePrefix) {
			name = pod.Spec.Volumes[i].Name
			break
		}
	}
	add := name == ""
	if add {
		name = volumePrefix + rand.String(5)
	}
	mounted := false
	for _, c := range podspec.NonEphemeral(&pod.Spec) {
		if !mountsAt(c, mountPath) {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: mountPath})
			mounted = true
		}
	}
	if add && mounted {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: tokenVolume()}})
	}
}

func mountsAt(c *corev1.Container, path string) bool {
	for i := range c.VolumeMounts {
		if c.VolumeMounts[i].MountPath == path {
			return true
		}
	}
	return false
}

// tokenVolume returns the files by which a client in a pod reaches the API server:
// the token, the server's authority, and the pod's namespace.
func tokenVolume() *corev1.ProjectedVolumeSource {
	return &corev1.ProjectedVolumeSource{
		DefaultMode: ptr.To(corev1.ProjectedVolumeSourceDefaultMode),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To(int64(lifetime))}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		},
	}
}
