package volume

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/csi"
)

// mountCSI makes a CSI driver publish a volume.
func (m *Manager) mountCSI(ctx context.Context, v csi.Volume) (mountedVolume, error) {
	v.Own = func(dir string) error { return ownNew(v.Pod, dir) }
	published, err := m.CSI.Publish(ctx, v)
	if err != nil {
		return mountedVolume{}, err
	}
	mounted := mountedVolume{name: v.Name, driver: v.Name, Mounted: Mounted{ReadOnly: v.ReadOnly}}
	if v.PV != nil {
		mounted.driver = v.PV.Name
	}
	if published.Measurable {
		mounted.measure = measureDriver
	}
	if v.Block {
		mounted.Device = published.Path
		return mounted, nil
	}
	mounted.HostPath, mounted.Relabel = published.Path, !v.ReadOnly && !published.Labelled
	return mounted, nil
}

// ownNew gives the files of a volume that has just been mounted to the pod's fsGroup, which it
// has, by its fsGroupChangePolicy.
func ownNew(pod *corev1.Pod, dir string) error {
	security := pod.Spec.SecurityContext
	policy := ptr.Deref(security.FSGroupChangePolicy, corev1.FSGroupChangeAlways)
	if policy == corev1.FSGroupChangeOnRootMismatch && owned(dir, *security.FSGroup, false) {
		return nil
	}
	return own(dir, *security.FSGroup, false)
}
