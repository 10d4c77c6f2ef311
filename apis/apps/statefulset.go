package apps

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/workload"
)

var statefulSets = resource.Type[*appsv1.StatefulSet]{
	Name: "statefulsets", ShortNames: []string{"sts"}, Categories: []string{"all"}, Namespaced: true,
	// The pods' names begin with the set's and are host names.
	NameRule:       apivalidation.NameIsDNSLabel,
	Default:        defaultStatefulSet,
	Validate:       validateStatefulSet,
	ValidateCreate: validateNewStatefulSet,
	ValidateUpdate: validateStatefulSetUpdate,
	Restrict: func(env *resource.Env, s *appsv1.StatefulSet) field.ErrorList {
		return podspec.Restrict(env, &s.Spec.Template.Spec, field.NewPath("spec", "template", "spec"))
	},
	Warn: func(s, old *appsv1.StatefulSet) []string {
		warnings := warnTemplate(s, old, &s.Spec.Template)
		if ptr.Deref(s.Spec.RevisionHistoryLimit, 0) < 0 {
			warnings = append(warnings, "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")
		}
		return warnings
	},
	Generation:     true,
	Status:         true,
	ValidateStatus: validateStatefulSetStatus,
	Scale: &resource.Scale[*appsv1.StatefulSet]{
		Replicas: func(s *appsv1.StatefulSet) **int32 { return &s.Spec.Replicas },
		Current:  func(s *appsv1.StatefulSet) int32 { return s.Status.Replicas },
		Selector: func(s *appsv1.StatefulSet) *metav1.LabelSelector { return s.Spec.Selector },
	},
	Columns: slices.Concat([]resource.Column[*appsv1.StatefulSet]{
		resource.Name[*appsv1.StatefulSet](),
		{Name: "Ready", Description: "Number of the pod with ready state",
			Value: func(s *appsv1.StatefulSet) any {
				return fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, ptr.Deref(s.Spec.Replicas, 0))
			}},
		resource.Age[*appsv1.StatefulSet](),
	}, resource.Wide(
		workload.ContainerColumns(func(s *appsv1.StatefulSet) *corev1.PodTemplateSpec { return &s.Spec.Template })...,
	)),
}

func defaultStatefulSet(s *appsv1.StatefulSet) {
	spec := &s.Spec
	podspec.DefaultTemplate(&spec.Template)
	resource.Fill(&spec.Replicas, 1)
	resource.Fill(&spec.RevisionHistoryLimit, 10)
	resource.FillEmpty(&spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	if spec.UpdateStrategy.Type == "" {
		spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		resource.Fill(&spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if rolling := spec.UpdateStrategy.RollingUpdate; rolling != nil && spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		resource.Fill(&rolling.Partition, 0)
	}
	resource.Fill(&spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	retention := spec.PersistentVolumeClaimRetentionPolicy
	resource.FillEmpty(&retention.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	resource.FillEmpty(&retention.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	for i := range spec.VolumeClaimTemplates {
		claim := &spec.VolumeClaimTemplates[i]
		// Clients that compare what they wrote with what they read rely on
		// the embedded objects' type (kubernetes/kubernetes#87583).
		claim.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}
		podspec.DefaultClaimSpec(&claim.Spec)
		podspec.RoundUpToMilli(claim.Status.Capacity)
		podspec.RoundUpToMilli(claim.Status.AllocatedResources)
		resource.FillEmpty(&claim.Status.Phase, corev1.ClaimPending)
	}
}

func validateStatefulSet(s *appsv1.StatefulSet) field.ErrorList {
	spec, path := &s.Spec, field.NewPath("spec")
	var errs field.ErrorList
	if p := spec.PodManagementPolicy; p != appsv1.OrderedReadyPodManagement && p != appsv1.ParallelPodManagement {
		errs = append(errs, field.Invalid(path.Child("podManagementPolicy"), p, "must be 'OrderedReady' or 'Parallel'"))
	}
	errs = slices.Concat(errs,
		validateStatefulSetStrategy(&spec.UpdateStrategy, path.Child("updateStrategy")),
		validateRetention(spec.PersistentVolumeClaimRetentionPolicy, path.Child("persistentVolumeClaimRetentionPolicy")),
		workload.ValidateCounts(path, workload.OfPtr("replicas", spec.Replicas), workload.Of("minReadySeconds", spec.MinReadySeconds)))
	if spec.Ordinals != nil {
		errs = slices.Concat(errs, workload.ValidateCounts(path.Child("ordinals"), workload.Of("start", spec.Ordinals.Start)))
	}
	if spec.Selector == nil {
		errs = append(errs, field.Required(path.Child("selector"), ""))
	}
	return slices.Concat(errs,
		workload.ValidateSelector(spec.Selector, "statefulset", path.Child("selector")),
		workload.ValidateSelected(&spec.Template, spec.Selector, path.Child("template")),
		workload.ValidateEndless(&spec.Template, "StatefulSet", path.Child("template")))
}

// validateTemplateOfSet validates the template of a set that is new or has been valid before:
// Kubernetes 1.28 stores any template.
func validateTemplateOfSet(s *appsv1.StatefulSet) field.ErrorList {
	return podspec.ValidateTemplate(podTemplateOf(&s.Spec), field.NewPath("spec", "template"))
}

// validateNewStatefulSet validates the template, and what cannot change later.
func validateNewStatefulSet(s *appsv1.StatefulSet) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateTemplateOfSet(s)
	if name := s.Spec.ServiceName; name != "" {
		errs = slices.Concat(errs, resource.Invalid(path.Child("serviceName"), name, validation.IsDNS1123Label(name)))
	}
	for i := range s.Spec.VolumeClaimTemplates {
		errs = slices.Concat(errs, podspec.ValidateClaimSpec(&s.Spec.VolumeClaimTemplates[i].Spec, path.Child("volumeClaimTemplates").Index(i).Child("spec")))
	}
	return errs
}

// podTemplateOf returns the template as the controller completes it: with the host
// name, the subdomain and a volume for each claim template. Volumes keep their
// indexes, so that errors have the right path.
func podTemplateOf(spec *appsv1.StatefulSetSpec) *corev1.PodTemplateSpec {
	template := spec.Template
	template.Spec.Hostname, template.Spec.Subdomain = "", ""
	volumes := slices.Clone(template.Spec.Volumes)
	for _, claim := range spec.VolumeClaimTemplates {
		volume := corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
		}}
		if at := slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.Name == claim.Name }); at >= 0 {
			volumes[at] = volume
		} else {
			volumes = append(volumes, volume)
		}
	}
	template.Spec.Volumes = volumes
	return &template
}

func validateStatefulSetStrategy(s *appsv1.StatefulSetUpdateStrategy, path *field.Path) field.ErrorList {
	rolling, rollingPath := s.RollingUpdate, path.Child("rollingUpdate")
	switch s.Type {
	case appsv1.OnDeleteStatefulSetStrategyType:
		if rolling != nil {
			return field.ErrorList{field.Invalid(rollingPath, rolling, "only allowed for updateStrategy 'RollingUpdate'")}
		}
		return nil
	case appsv1.RollingUpdateStatefulSetStrategyType:
		if rolling == nil {
			return nil
		}
		errs := workload.ValidateCounts(rollingPath, workload.OfPtr("partition", rolling.Partition))
		if rolling.MaxUnavailable == nil {
			return errs
		}
		path := rollingPath.Child("maxUnavailable")
		errs = slices.Concat(errs, workload.ValidateIntOrPercent(rolling.MaxUnavailable, path))
		if workload.Amount(rolling.MaxUnavailable) == 0 {
			errs = append(errs, field.Invalid(path, ptr.Deref(rolling.MaxUnavailable, intstr.IntOrString{}), "cannot be 0"))
		}
		return slices.Concat(errs, workload.ValidateAtMost100Percent(rolling.MaxUnavailable, path))
	default:
		return field.ErrorList{field.Invalid(path, *s, "must be 'RollingUpdate' or 'OnDelete'")}
	}
}

func validateRetention(p *appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	retain, remove := appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	return slices.Concat(
		resource.OneOf(path.Child("whenDeleted"), p.WhenDeleted, retain, remove),
		resource.OneOf(path.Child("whenScaled"), p.WhenScaled, retain, remove))
}

func validateStatefulSetUpdate(s, old *appsv1.StatefulSet) field.ErrorList {
	var errs field.ErrorList
	if len(validateStatefulSet(old))+len(validateTemplateOfSet(old)) == 0 {
		errs = validateTemplateOfSet(s)
	}
	// The fields that may change are copied from the old spec; the others must be
	// equal.
	spec, was := s.Spec, &old.Spec
	spec.Replicas, spec.Ordinals, spec.Template = was.Replicas, was.Ordinals, was.Template
	spec.UpdateStrategy, spec.RevisionHistoryLimit = was.UpdateStrategy, was.RevisionHistoryLimit
	spec.PersistentVolumeClaimRetentionPolicy, spec.MinReadySeconds = was.PersistentVolumeClaimRetentionPolicy, was.MinReadySeconds
	if apiequality.Semantic.DeepEqual(&spec, was) {
		return errs
	}
	return append(errs, field.Forbidden(field.NewPath("spec"), "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"))
}

func validateStatefulSetStatus(set, old *appsv1.StatefulSet) field.ErrorList {
	s, path := &set.Status, field.NewPath("status")
	available, ready := workload.Of("availableReplicas", s.AvailableReplicas), workload.Of("readyReplicas", s.ReadyReplicas)
	current, updated := workload.Of("currentReplicas", s.CurrentReplicas), workload.Of("updatedReplicas", s.UpdatedReplicas)
	return slices.Concat(
		workload.ValidateCounts(path,
			workload.Of("replicas", s.Replicas), ready, current, updated, available,
			workload.Of("observedGeneration", s.ObservedGeneration),
			workload.OfPtr("collisionCount", s.CollisionCount)),
		workload.ValidateAtMost(s.Replicas, "cannot be greater than status.replicas", path, ready, current, updated, available),
		workload.ValidateAtMost(s.ReadyReplicas, "cannot be greater than status.readyReplicas", path, available),
		workload.ValidateNotDecremented(s.CollisionCount, old.Status.CollisionCount, path.Child("collisionCount")),
	)
}
