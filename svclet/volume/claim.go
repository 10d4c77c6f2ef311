package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/ephemeral"
	storagehelpers "k8s.io/component-helpers/storage/volume"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/svclet/csi"
	"svc.dev/svc/svclet/flexvolume"
)

const (
	protectionFinalizer = "kubernetes.io/pvc-protection"
	groupAnnotation     = "pv.beta.kubernetes.io/gid"
)

// mountClaim mounts the PersistentVolume that is bound to a claim.
func (m *Manager) mountClaim(ctx context.Context, s *state, pod *corev1.Pod, volume *corev1.Volume) (mountedVolume, error) {
	name, readOnly := "", false
	if source := volume.PersistentVolumeClaim; source != nil {
		name, readOnly = source.ClaimName, source.ReadOnly
	} else {
		name = ephemeral.VolumeClaimName(pod, volume)
	}
	claim, pv, err := m.claim(ctx, pod.Namespace, name)
	if err != nil {
		return mountedVolume{}, fmt.Errorf("error processing PVC %s/%s: %w", pod.Namespace, name, err)
	}
	if volume.Ephemeral != nil {
		if err := ephemeral.VolumeIsForPod(pod, claim); err != nil {
			return mountedVolume{}, err
		}
	}
	mounted, err := m.operate(s, volume.Name, m.persistentPlugin(&pv.Spec.PersistentVolumeSource), func() (mountedVolume, error) {
		if m.remembered(s, volume.Name) == nil {
			err := m.checkFirst(pv)
			if err != nil && !m.hadBefore(pod, volume.Name) {
				return mountedVolume{}, err
			} else if err != nil {
				klog.FromContext(ctx).Info("Kept a volume that the pod has, and that would be refused to another one", "pod", klog.KObj(pod), "volume", volume.Name, "err", err)
			}
		}
		return m.mountPersistent(ctx, pod, volume.Name, claim, pv, readOnly)
	})
	mounted.claim = name
	if group, parse := strconv.ParseInt(pv.Annotations[groupAnnotation], 10, 64); parse == nil {
		mounted.Group = &group
	}
	return mounted, err
}

// hadBefore reports whether the pod got a volume before the agent was restarted. The sign of it is
// the pod's directory "containers", which is made when its first container is created: the volumes
// of all containers but the ephemeral ones are mounted before. The pod's directory itself is there
// since the first attempt, which may have refused the volume.
func (m *Manager) hadBefore(pod *corev1.Pod, volume string) bool {
	_, err := os.Stat(m.layout.containers(pod.UID))
	return err == nil && uses(podspec.NonEphemeral(&pod.Spec)).all().Has(volume)
}

// checkFirst refuses a volume that the pod does not have yet.
func (m *Manager) checkFirst(pv *corev1.PersistentVolume) error {
	if err := m.checkAffinity(pv); err != nil {
		return err
	}
	if pv.Spec.HostPath != nil && len(mountOptions(pv)) > 0 {
		return &checkError{"MountVolume.MountOptionSupport", errors.New("mount options are not supported for this volume type")}
	}
	return nil
}

// checkAffinity refuses a volume that is not on this node: the node of a pod may be in its spec
// from the start, without a scheduler that has checked this.
func (m *Manager) checkAffinity(pv *corev1.PersistentVolume) error {
	var labels map[string]string
	if m.NodeLabels != nil {
		labels = m.NodeLabels()
	}
	err := storagehelpers.CheckNodeAffinity(pv, labels)
	if err == nil {
		return nil
	}
	check := "MountVolume.NodeAffinity"
	if isBlock(pv) {
		check = "MapVolume.NodeAffinity"
	}
	return &checkError{check, err}
}

// isBlock reports whether a volume is a block device for containers.
func isBlock(pv *corev1.PersistentVolume) bool {
	return ptr.Deref(pv.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock
}

// mountPersistent mounts a PersistentVolume that is bound to a claim. name is that of the pod's
// volume.
func (m *Manager) mountPersistent(ctx context.Context, pod *corev1.Pod, name string, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, readOnly bool) (mountedVolume, error) {
	if pv.Spec.PortworxVolume != nil && m.migratesPortworx() {
		var err error
		if pv, err = asPortworxCSI(ctx, pv); err != nil {
			return mountedVolume{}, err
		}
	}
	block, err := checkMode(pod, name, pv)
	if err != nil {
		return mountedVolume{}, err
	}
	switch {
	case pv.Spec.CSI != nil && m.CSI != nil:
		return m.mountCSI(ctx, csi.Volume{Pod: pod, Name: name, PV: pv, Claim: claim, Block: block, ReadOnly: readOnly})
	case pv.Spec.Local != nil:
		return m.mountLocal(ctx, localVolume{pod: pod, name: name, pv: pv, claim: claim, readOnly: readOnly}, block)
	case block:
		return mountedVolume{}, fmt.Errorf("PersistentVolume %s is of type %s, which has no volumeMode Block: remove volumeMode", pv.Name, sourceName(&pv.Spec.PersistentVolumeSource))
	case pv.Spec.HostPath != nil:
		return mountHostPath(name, pv.Spec.HostPath, readOnly)
	case pv.Spec.NFS != nil:
		return m.mountNFS(ctx, pod, name, pv.Name, pv.Spec.NFS, mountOptions(pv), readOnly)
	case pv.Spec.FlexVolume != nil && m.flex != nil:
		return m.mountFlex(ctx, name, flexvolume.Volume{
			Pod: pod, Name: pv.Name, Persistent: true, Source: *pv.Spec.FlexVolume, MountOptions: mountOptions(pv),
			ReadOnly: readOnly || pv.Spec.FlexVolume.ReadOnly,
		})
	default:
		return mountedVolume{}, unsupportedVolume(pv)
	}
}

// mountOptions returns the options with which a volume is to be mounted that has no CSI driver: those
// of its annotation, if it has that (MountOptionFromSpec of kubelet).
func mountOptions(pv *corev1.PersistentVolume) []string {
	annotation, found := pv.Annotations[corev1.MountOptionAnnotation]
	if !found {
		return pv.Spec.MountOptions
	}
	return slices.DeleteFunc(strings.Split(annotation, ","), func(option string) bool { return option == "" })
}

// claim reads a claim and the volume that is bound to it.
func (m *Manager) claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume, error) {
	claim, err := m.Objects.PersistentVolumeClaim(ctx, namespace, name)
	if err != nil {
		return nil, nil, fmt.Errorf("failed to fetch PVC from API server: %w", err)
	}
	switch {
	case claim.DeletionTimestamp != nil && !slices.Contains(claim.Finalizers, protectionFinalizer):
		return nil, nil, errors.New("PVC is being deleted")
	case claim.Status.Phase != corev1.ClaimBound:
		return nil, nil, errors.New("PVC is not bound")
	case claim.Spec.VolumeName == "":
		return nil, nil, errors.New("PVC has empty pvc.Spec.VolumeName")
	}
	pv, err := m.Objects.PersistentVolume(ctx, claim.Spec.VolumeName)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("failed to fetch PV %s from API server: %w", claim.Spec.VolumeName, err)
	case pv.Spec.ClaimRef == nil:
		return nil, nil, fmt.Errorf("found PV object %s but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim", pv.Name)
	case pv.Spec.ClaimRef.UID != claim.UID:
		return nil, nil, fmt.Errorf("found PV object %s but its pv.Spec.ClaimRef.UID %s does not point to claim.UID %s", pv.Name, pv.Spec.ClaimRef.UID, claim.UID)
	}
	return claim, pv, nil
}

// checkMode reports whether a volume is a block device, which containers use as
// volumeDevices; other volumes are used as volumeMounts. An ephemeral container that uses it in the
// other way fails alone.
func checkMode(pod *corev1.Pod, volume string, pv *corev1.PersistentVolume) (block bool, err error) {
	used := uses(podspec.NonEphemeral(&pod.Spec))
	block = isBlock(pv)
	switch {
	case used.mounts.Has(volume) && block:
		return block, fmt.Errorf("volume %s has volumeMode %s, but is specified in volumeMounts", volume, corev1.PersistentVolumeBlock)
	case used.devices.Has(volume) && !block:
		return block, fmt.Errorf("volume %s has volumeMode %s, but is specified in volumeDevices", volume, corev1.PersistentVolumeFilesystem)
	}
	return block, nil
}
