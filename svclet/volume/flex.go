package volume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/svclet/flexvolume"
)

// mountInlineFlex mounts a volume of a FlexVolume driver that the pod itself describes.
func (m *Manager) mountInlineFlex(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) (mountedVolume, error) {
	source := volume.FlexVolume
	persistent := corev1.FlexPersistentVolumeSource{Driver: source.Driver, FSType: source.FSType, Options: source.Options}
	if source.SecretRef != nil {
		persistent.SecretRef = &corev1.SecretReference{Name: source.SecretRef.Name}
	}
	return m.mountFlex(ctx, volume.Name, flexvolume.Volume{Pod: pod, Name: volume.Name, Source: persistent, ReadOnly: source.ReadOnly})
}

// mountFlex makes a FlexVolume driver publish a volume, and gives its files to the pod's
// fsGroup unless the driver does that. name is that of the pod's volume.
func (m *Manager) mountFlex(ctx context.Context, name string, v flexvolume.Volume) (mountedVolume, error) {
	if !isName(v.Name) {
		return mountedVolume{}, fmt.Errorf("name %q of the volume cannot be a directory's name", v.Name)
	}
	published, err := m.flex.Publish(ctx, v)
	if err != nil {
		return mountedVolume{}, err
	}
	mounted := mountedVolume{name: name, Mounted: Mounted{HostPath: published.Path, ReadOnly: v.ReadOnly, Relabel: published.Relabel}}
	if published.Measurable {
		mounted.measure = measureFilesystem
	}
	group := fsGroup(v.Pod)
	if group == nil || !published.Group {
		return mounted, nil
	}
	policy := v.Pod.Spec.SecurityContext.FSGroupChangePolicy
	always := policy == nil || *policy == corev1.FSGroupChangeAlways
	if published.New && always || !owned(published.Path, *group, false) {
		return mounted, own(published.Path, *group, false)
	}
	return mounted, nil
}
