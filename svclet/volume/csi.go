package volume

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/svclet/csi"
)

// mountCSI makes a CSI driver publish a volume, and gives its files to the pod's fsGroup
// if the driver does not do that.
func (m *Manager) mountCSI(ctx context.Context, v csi.Volume) (mountedVolume, error) {
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
	if !published.Group {
		return mounted, nil
	}
	security := v.Pod.Spec.SecurityContext
	always := security.FSGroupChangePolicy == nil || *security.FSGroupChangePolicy == corev1.FSGroupChangeAlways
	if published.New && always || !owned(published.Path, *security.FSGroup, false) {
		return mounted, own(published.Path, *security.FSGroup, false)
	}
	return mounted, nil
}
