package volume

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/csi"
)

// translator is made once: it has a table of all drivers.
var translator = csitranslation.New()

// migratesPortworx reports whether volumes of type portworxVolume are mounted by the CSI
// driver of Portworx.
func (m *Manager) migratesPortworx() bool { return m.MigratePortworx && m.CSI != nil }

// asPortworxCSI returns a PersistentVolume of type portworxVolume as one of the CSI driver.
// It is read-only if pv is, unlike that of the library.
func asPortworxCSI(ctx context.Context, pv *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	translated, err := translator.TranslateInTreePVToCSI(klog.FromContext(ctx), pv)
	if err != nil {
		return nil, err
	}
	translated.Spec.CSI.ReadOnly = pv.Spec.PortworxVolume.ReadOnly
	return translated, nil
}

// mountInlinePortworx makes the CSI driver publish a volume that is in the pod's spec.
func (m *Manager) mountInlinePortworx(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) (mountedVolume, error) {
	pv, err := translator.TranslateInTreeInlineVolumeToCSI(klog.FromContext(ctx), volume, pod.Namespace)
	if err != nil {
		return mountedVolume{}, err
	}
	return m.mountCSI(ctx, csi.Volume{Pod: pod, Name: volume.Name, PV: pv, ReadOnly: volume.PortworxVolume.ReadOnly})
}
