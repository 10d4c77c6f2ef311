package csi

import (
	"cmp"
	"crypto/sha256"
	"fmt"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
)

// Volume is a volume of a pod that a driver provides: by a PersistentVolume, or inline.
type Volume struct {
	Pod *corev1.Pod
	// Name is the volume's name in the pod's spec.
	Name string
	// PV is the volume that is bound to the pod's claim; both are nil for an inline
	// volume. Without a claim, PV stands for an inline volume of another type, which the
	// driver provides.
	PV    *corev1.PersistentVolume
	Claim *corev1.PersistentVolumeClaim
	// Inline is the source of an inline volume.
	Inline *corev1.CSIVolumeSource
	// Block reports whether the volume is a block device; ReadOnly whether it is mounted
	// read-only.
	Block, ReadOnly bool
	// Own gives the files of the directory of a volume to the pod's fsGroup. It is required if
	// the pod has one. It is called after the volume has been published, unless the driver
	// does that or the files keep their group; not again once it has succeeded.
	Own func(dir string) error
}

// Published is a volume that a driver has published.
type Published struct {
	// Path is its directory or, of a block device, the device.
	Path string
	// Labelled reports whether it is mounted with the pod's SELinux label.
	Labelled bool
	// Measurable reports whether the driver measures volumes.
	Measurable bool
}

// record returns what is to be recorded of a volume.
func (v *Volume) record() record {
	if v.PV == nil {
		hash := sha256.Sum256([]byte(string(v.Pod.UID) + v.Name))
		return record{Driver: v.Inline.Driver, Handle: fmt.Sprintf("csi-%x", hash), Volume: v.Name}
	}
	return record{Driver: v.PV.Spec.CSI.Driver, Handle: v.PV.Spec.CSI.VolumeHandle, Volume: v.PV.Name, Block: v.Block}
}

// accessMode returns the first access mode of the volume.
func (v *Volume) accessMode() corev1.PersistentVolumeAccessMode {
	if v.PV == nil || len(v.PV.Spec.AccessModes) == 0 {
		return corev1.ReadWriteOnce
	}
	return v.PV.Spec.AccessModes[0]
}

func (v *Volume) fsType() string {
	if v.PV == nil {
		return ptr.Deref(v.Inline.FSType, "")
	}
	return v.PV.Spec.CSI.FSType
}

func (v *Volume) attributes() map[string]string {
	if v.PV == nil {
		return v.Inline.VolumeAttributes
	}
	return v.PV.Spec.CSI.VolumeAttributes
}

// readOnly reports whether the driver is to publish the volume read-only: if the pod says so. The
// field readOnly of a PersistentVolume is for the controller that attaches it (its documentation,
// and getReadOnlyFromSpec of kubelet's CSI plugin).
func (v *Volume) readOnly() bool {
	if v.PV == nil {
		return ptr.Deref(v.Inline.ReadOnly, false)
	}
	return v.ReadOnly
}

// capability returns how the volume is used, for the driver's calls.
func (v *Volume) capability(d *driver, options []string, group *int64) *spec.VolumeCapability {
	c := &spec.VolumeCapability{AccessMode: &spec.VolumeCapability_AccessMode{
		Mode: driverMode(v.accessMode(), d.can(spec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)),
	}}
	if v.Block {
		c.AccessType = &spec.VolumeCapability_Block{Block: &spec.VolumeCapability_BlockVolume{}}
		return c
	}
	mount := &spec.VolumeCapability_MountVolume{FsType: v.fsType(), MountFlags: options}
	if group != nil {
		mount.VolumeMountGroup = fmt.Sprint(*group)
	}
	c.AccessType = &spec.VolumeCapability_Mount{Mount: mount}
	return c
}

// driverMode returns CSI's access mode. multiWriter reports whether the driver
// distinguishes a single pod from a single node (SINGLE_NODE_MULTI_WRITER).
func driverMode(mode corev1.PersistentVolumeAccessMode, multiWriter bool) spec.VolumeCapability_AccessMode_Mode {
	switch {
	case mode == corev1.ReadOnlyMany:
		return spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case mode == corev1.ReadWriteMany:
		return spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	case mode == corev1.ReadWriteOncePod && multiWriter:
		return spec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	case multiWriter:
		return spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	}
	return spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
}

// group returns the pod's fsGroup, nil if it has none.
func (v *Volume) group() *int64 {
	if v.Pod.Spec.SecurityContext == nil {
		return nil
	}
	return v.Pod.Spec.SecurityContext.FSGroup
}

// givesGroup reports whether the files of a volume are to belong to the pod's fsGroup, by
// the CSIDriver's fsGroupPolicy.
func (v *Volume) givesGroup(object *storagev1.CSIDriver) bool {
	if v.group() == nil || v.Block || v.readOnly() {
		return false
	}
	switch ptr.Deref(object.Spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy) {
	case storagev1.NoneFSGroupPolicy:
		return false
	case storagev1.FileFSGroupPolicy:
		return true
	}
	// Inline volumes are the pod's own.
	if v.PV == nil {
		return v.fsType() != ""
	}
	once := false
	for _, mode := range v.PV.Spec.AccessModes {
		once = once || mode == corev1.ReadWriteOnce || mode == corev1.ReadWriteOncePod
	}
	return v.fsType() != "" && once
}

// podInfo returns the attributes of the pod in the volume context, by the CSIDriver's
// podInfoOnMount.
func (v *Volume) podInfo(object *storagev1.CSIDriver) map[string]string {
	if !ptr.Deref(object.Spec.PodInfoOnMount, false) {
		return nil
	}
	return map[string]string{
		"csi.storage.k8s.io/pod.name":            v.Pod.Name,
		"csi.storage.k8s.io/pod.namespace":       v.Pod.Namespace,
		"csi.storage.k8s.io/pod.uid":             string(v.Pod.UID),
		"csi.storage.k8s.io/serviceAccount.name": v.Pod.Spec.ServiceAccountName,
		"csi.storage.k8s.io/ephemeral":           fmt.Sprint(v.PV == nil),
	}
}

// checkLifecycle refuses an inline volume of a driver that has none, and vice versa.
func (v *Volume) checkLifecycle(object *storagev1.CSIDriver) error {
	mode := storagev1.VolumeLifecyclePersistent
	if v.PV == nil {
		mode = storagev1.VolumeLifecycleEphemeral
	}
	modes := object.Spec.VolumeLifecycleModes
	if len(modes) == 0 {
		modes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
	for _, m := range modes {
		if m == mode {
			return nil
		}
	}
	if object.Name == "" {
		return fmt.Errorf("volume mode %q not supported by driver: no CSIDriver object", mode)
	}
	return fmt.Errorf("volume mode %q not supported by driver %s (only supports %q)", mode, object.Name, modes)
}

// mountOptions returns the options of the mount: those of the PersistentVolume and, on a
// host with SELinux, the label of a volume that only this pod uses. labelled reports whether
// they have the label.
func (v *Volume) mountOptions(object *storagev1.CSIDriver, selinux bool) (options []string, labelled bool) {
	if v.PV == nil {
		return nil, false
	}
	options = v.PV.Spec.MountOptions
	label := v.Pod.Spec.SecurityContext
	if !selinux || !ptr.Deref(object.Spec.SELinuxMount, false) || v.accessMode() != corev1.ReadWriteOncePod ||
		label == nil || label.SELinuxOptions == nil || label.SELinuxOptions.Level == "" {
		return options, false
	}
	l := label.SELinuxOptions
	context := fmt.Sprintf("%s:%s:%s:%s", cmp.Or(l.User, "system_u"), cmp.Or(l.Role, "object_r"), cmp.Or(l.Type, "container_file_t"), l.Level)
	return append(append([]string(nil), options...), fmt.Sprintf("context=%q", context)), true
}
