package node

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// volumeSecrets yields the secrets that an agent needs to mount a persistent volume. A
// CSI driver's controller has secrets of its own, which no node reads.
func volumeSecrets(v *corev1.PersistentVolume) iter.Seq[types.NamespacedName] {
	return func(yield func(types.NamespacedName) bool) {
		for _, ref := range secretReferences(v) {
			if ref == nil || ref.Name == "" {
				continue
			}
			secret := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
			if secret.Namespace == "" && v.Spec.ClaimRef != nil {
				secret.Namespace = v.Spec.ClaimRef.Namespace
			}
			if !yield(secret) {
				return
			}
		}
	}
}

func secretReferences(v *corev1.PersistentVolume) []*corev1.SecretReference {
	source := &v.Spec.PersistentVolumeSource
	switch {
	case source.AzureFile != nil:
		ref := &corev1.SecretReference{Name: source.AzureFile.SecretName}
		if source.AzureFile.SecretNamespace != nil {
			ref.Namespace = *source.AzureFile.SecretNamespace
		}
		return []*corev1.SecretReference{ref}
	case source.CephFS != nil:
		return []*corev1.SecretReference{source.CephFS.SecretRef}
	case source.Cinder != nil:
		return []*corev1.SecretReference{source.Cinder.SecretRef}
	case source.CSI != nil:
		return []*corev1.SecretReference{source.CSI.NodePublishSecretRef, source.CSI.NodeStageSecretRef, source.CSI.NodeExpandSecretRef}
	case source.FlexVolume != nil:
		return []*corev1.SecretReference{source.FlexVolume.SecretRef}
	case source.ISCSI != nil:
		return []*corev1.SecretReference{source.ISCSI.SecretRef}
	case source.RBD != nil:
		return []*corev1.SecretReference{source.RBD.SecretRef}
	case source.ScaleIO != nil:
		return []*corev1.SecretReference{source.ScaleIO.SecretRef}
	case source.StorageOS != nil && source.StorageOS.SecretRef != nil:
		return []*corev1.SecretReference{{Namespace: source.StorageOS.SecretRef.Namespace, Name: source.StorageOS.SecretRef.Name}}
	}
	return nil
}
