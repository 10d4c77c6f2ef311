package core

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/volumespec"
)

var persistentVolumes = resource.Type[*corev1.PersistentVolume]{
	Name: "persistentvolumes", ShortNames: []string{"pv"}, ReturnDeleted: true,
	Default:        defaultPersistentVolume,
	PrepareCreate:  preparePersistentVolume,
	Validate:       validatePersistentVolume,
	ValidateUpdate: validatePersistentVolumeUpdate,
	Warn:           warnPersistentVolume,
	Status:         true,
	PrepareStatus:  preparePersistentVolumeStatus,
	Columns:        persistentVolumeColumns,
}

func defaultPersistentVolume(v *corev1.PersistentVolume) {
	resource.FillEmpty(&v.Status.Phase, corev1.VolumePending)
	resource.FillEmpty(&v.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	resource.Fill(&v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	podspec.RoundUpToMilli(v.Spec.Capacity)
	volumespec.DefaultSource(&v.Spec.PersistentVolumeSource)
}

// preparePersistentVolume sets the status of a new volume.
func preparePersistentVolume(_ context.Context, env *resource.Env, v *corev1.PersistentVolume) {
	v.Status.Phase = corev1.VolumePending
	v.Status.LastPhaseTransitionTime = new(metav1.NewTime(env.Clock.Now()))
}

// preparePersistentVolumeStatus sets the time of a change of phase, unless the
// client sets it.
func preparePersistentVolumeStatus(env *resource.Env, v, old *corev1.PersistentVolume) {
	at, was := &v.Status.LastPhaseTransitionTime, old.Status.LastPhaseTransitionTime
	switch {
	case v.Status.Phase == old.Status.Phase && *at == nil:
		*at = was
	case v.Status.Phase != old.Status.Phase && (*at == nil || (*at).Equal(was)):
		*at = new(metav1.NewTime(env.Clock.Now()))
	}
}

func validatePersistentVolume(v *corev1.PersistentVolume) field.ErrorList {
	return volumespec.Validate(&v.Spec, v.Name, specPath)
}

// accessModes are the access modes of volumes, with their abbreviations in tables.
var accessModes = []struct {
	mode corev1.PersistentVolumeAccessMode
	name string
}{
	{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"}, {corev1.ReadWriteMany, "RWX"}, {corev1.ReadWriteOncePod, "RWOP"},
}

func validatePersistentVolumeUpdate(v, old *corev1.PersistentVolume) field.ErrorList {
	var errs field.ErrorList
	source, was := v.Spec.PersistentVolumeSource, old.Spec.PersistentVolumeSource
	if source.CSI != nil && was.CSI != nil && was.CSI.ControllerExpandSecretRef == nil {
		// It may change from unset to set.
		csi := *source.CSI
		csi.ControllerExpandSecretRef = nil
		source.CSI = &csi
	}
	if !apiequality.Semantic.DeepEqual(source, was) {
		errs = append(errs, field.Forbidden(specPath.Child("persistentvolumesource"),
			fmt.Sprintf("spec.persistentvolumesource is immutable after creation\n%v", diff.Diff(was, source))))
	}
	errs = append(errs, apivalidation.ValidateImmutableField(v.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
	if affinity := v.Spec.NodeAffinity; old.Spec.NodeAffinity != nil && !apiequality.Semantic.DeepEqual(affinity, withStableLabels(old.Spec.NodeAffinity, affinity)) {
		errs = append(errs, field.Invalid(field.NewPath("nodeAffinity"), affinity, apivalidation.FieldImmutableErrorMsg+", except for updating from beta label to GA"))
	}
	if old.Spec.VolumeAttributesClassName != nil && v.Spec.VolumeAttributesClassName == nil {
		errs = append(errs, field.Forbidden(specPath.Child("volumeAttributesClassName"), "update from non-nil value to nil is forbidden"))
	}
	return errs
}

// stableNodeLabels maps beta labels of nodes to the stable labels that replaced
// them.
var stableNodeLabels = map[string]string{
	corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable,
	"beta.kubernetes.io/os":             corev1.LabelOSStable,
	"beta.kubernetes.io/arch":           corev1.LabelArchStable,
}

// withStableLabels returns the old affinity with beta labels replaced by stable
// ones where the new affinity has them.
func withStableLabels(old, now *corev1.VolumeNodeAffinity) *corev1.VolumeNodeAffinity {
	if old.Required == nil || now == nil || now.Required == nil {
		return old
	}
	old = old.DeepCopy()
	terms, nowTerms := old.Required.NodeSelectorTerms, now.Required.NodeSelectorTerms
	for i := range min(len(terms), len(nowTerms)) {
		is, becomes := terms[i].MatchExpressions, nowTerms[i].MatchExpressions
		for j := range min(len(is), len(becomes)) {
			if stable, ok := stableNodeLabels[is[j].Key]; ok && stable == becomes[j].Key {
				is[j].Key = stable
			}
		}
	}
	return old
}

func warnPersistentVolume(v, _ *corev1.PersistentVolume) []string {
	var warnings []string
	add := func(broken bool, warning string) {
		if broken {
			warnings = append(warnings, warning)
		}
	}
	_, annotated := v.Annotations[corev1.BetaStorageClassAnnotation]
	add(annotated, `metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8; use "storageClassName" attribute instead`)
	add(v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle,
		"spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.")
	add(v.Spec.CephFS != nil, "spec.cephfs: deprecated in v1.28, non-functional in v1.31+")
	add(v.Spec.PhotonPersistentDisk != nil, "spec.photonPersistentDisk: deprecated in v1.11, non-functional in v1.16+")
	add(v.Spec.ScaleIO != nil, "spec.scaleIO: deprecated in v1.16, non-functional in v1.22+")
	add(v.Spec.StorageOS != nil, "spec.storageOS: deprecated in v1.22, non-functional in v1.25+")
	add(v.Spec.Glusterfs != nil, "spec.glusterfs: deprecated in v1.25, non-functional in v1.26+")
	add(v.Spec.RBD != nil, "spec.rbd: deprecated in v1.28, non-functional in v1.31+")
	if affinity := v.Spec.NodeAffinity; affinity != nil {
		warnings = append(warnings, podspec.WarnNodeSelector(affinity.Required, specPath.Child("nodeAffinity", "required"))...)
	}
	return warnings
}

var persistentVolumeColumns = func() []resource.Column[*corev1.PersistentVolume] {
	spec, status := corev1.PersistentVolumeSpec{}.SwaggerDoc(), corev1.PersistentVolumeStatus{}.SwaggerDoc()
	column := func(name, description string, value func(v *corev1.PersistentVolume) string) resource.Column[*corev1.PersistentVolume] {
		return resource.Column[*corev1.PersistentVolume]{Name: name, Description: description, Value: func(v *corev1.PersistentVolume) any { return value(v) }}
	}
	return append([]resource.Column[*corev1.PersistentVolume]{
		resource.Name[*corev1.PersistentVolume](),
		column("Capacity", spec["capacity"], func(v *corev1.PersistentVolume) string { return amountOf(v.Spec.Capacity) }),
		column("Access Modes", spec["accessModes"], func(v *corev1.PersistentVolume) string { return accessModeList(v.Spec.AccessModes) }),
		column("Reclaim Policy", spec["persistentVolumeReclaimPolicy"], func(v *corev1.PersistentVolume) string {
			return string(v.Spec.PersistentVolumeReclaimPolicy)
		}),
		column("Status", status["phase"], func(v *corev1.PersistentVolume) string { return phaseUnlessDeleted(v, string(v.Status.Phase)) }),
		column("Claim", spec["claimRef"], func(v *corev1.PersistentVolume) string {
			if v.Spec.ClaimRef == nil {
				return ""
			}
			return v.Spec.ClaimRef.Namespace + "/" + v.Spec.ClaimRef.Name
		}),
		column("StorageClass", "StorageClass of the pv", func(v *corev1.PersistentVolume) string {
			return storageClass(v.Annotations, &v.Spec.StorageClassName)
		}),
		resource.Since(29, column("VolumeAttributesClass", "VolumeAttributesClass of the pv", func(v *corev1.PersistentVolume) string {
			return orUnset(v.Spec.VolumeAttributesClassName)
		})),
		column("Reason", status["reason"], func(v *corev1.PersistentVolume) string { return v.Status.Reason }),
		resource.Age[*corev1.PersistentVolume](),
	}, resource.Wide(
		column("VolumeMode", spec["volumeMode"], func(v *corev1.PersistentVolume) string { return orUnset(v.Spec.VolumeMode) }),
	)...)
}()

// amountOf returns the amount of storage in the list, "0" if it has none.
func amountOf(list corev1.ResourceList) string {
	amount := list[corev1.ResourceStorage]
	return amount.String()
}

func accessModeList(modes []corev1.PersistentVolumeAccessMode) string {
	var names []string
	for _, known := range accessModes {
		if slices.Contains(modes, known.mode) {
			names = append(names, known.name)
		}
	}
	return strings.Join(names, ",")
}

// phaseUnlessDeleted returns the Status cell of volumes and claims.
func phaseUnlessDeleted(obj metav1.Object, phase string) string {
	if obj.GetDeletionTimestamp() != nil {
		return "Terminating"
	}
	return phase
}

// storageClass returns the storage class of a volume or claim: that of the
// deprecated annotation or of the field.
func storageClass(annotations map[string]string, name *string) string {
	if class, ok := annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	if name == nil {
		return ""
	}
	return *name
}

func orUnset[T ~string](value *T) string {
	if value == nil {
		return "<unset>"
	}
	return string(*value)
}
