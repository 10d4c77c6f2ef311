package apps

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/workload"
)

var deployments = resource.Type[*appsv1.Deployment]{
	Name: "deployments", ShortNames: []string{"deploy"}, Categories: []string{"all"}, Namespaced: true,
	Default:        defaultDeployment,
	Validate:       validateDeployment,
	ValidateUpdate: validateDeploymentUpdate,
	Restrict: func(env *resource.Env, d *appsv1.Deployment) field.ErrorList {
		return podspec.Restrict(env, &d.Spec.Template.Spec, field.NewPath("spec", "template", "spec"))
	},
	Warn: func(d, old *appsv1.Deployment) []string {
		warnings := warnTemplate(d, old, &d.Spec.Template)
		if old == nil {
			warnings = append(workload.NameWarnings(d.Name), warnings...)
		}
		return warnings
	},
	Generation:     true,
	PrepareUpdate:  countAnnotationChange,
	Status:         true,
	PrepareStatus:  func(_ *resource.Env, d, old *appsv1.Deployment) { d.Labels = old.Labels },
	StatusResets:   []string{"metadata.labels"},
	ValidateStatus: validateDeploymentStatus,
	Scale: &resource.Scale[*appsv1.Deployment]{
		Replicas: func(d *appsv1.Deployment) **int32 { return &d.Spec.Replicas },
		Current:  func(d *appsv1.Deployment) int32 { return d.Status.Replicas },
		Selector: func(d *appsv1.Deployment) *metav1.LabelSelector { return d.Spec.Selector },
	},
	Columns: slices.Concat([]resource.Column[*appsv1.Deployment]{
		resource.Name[*appsv1.Deployment](),
		{Name: "Ready", Description: "Number of the pod with ready state",
			Value: func(d *appsv1.Deployment) any {
				return fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, ptr.Deref(d.Spec.Replicas, 0))
			}},
		{Name: "Up-to-date", Description: appsv1.DeploymentStatus{}.SwaggerDoc()["updatedReplicas"],
			Value: func(d *appsv1.Deployment) any { return int64(d.Status.UpdatedReplicas) }},
		{Name: "Available", Description: appsv1.DeploymentStatus{}.SwaggerDoc()["availableReplicas"],
			Value: func(d *appsv1.Deployment) any { return int64(d.Status.AvailableReplicas) }},
		resource.Age[*appsv1.Deployment](),
	}, resource.Wide(append(
		workload.ContainerColumns(func(d *appsv1.Deployment) *corev1.PodTemplateSpec { return &d.Spec.Template }),
		workload.SelectorColumn(appsv1.DeploymentSpec{}.SwaggerDoc()["selector"], func(d *appsv1.Deployment) *metav1.LabelSelector { return d.Spec.Selector }),
	)...)),
}

func defaultDeployment(d *appsv1.Deployment) {
	spec := &d.Spec
	podspec.DefaultTemplate(&spec.Template)
	resource.Fill(&spec.Replicas, 1)
	resource.Fill(&spec.RevisionHistoryLimit, 10)
	resource.Fill(&spec.ProgressDeadlineSeconds, 600)
	resource.FillEmpty(&spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return
	}
	if spec.Strategy.RollingUpdate == nil {
		spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{}
	}
	resource.Fill(&spec.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
	resource.Fill(&spec.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
}

// countAnnotationChange increments the generation when annotations change: the
// controller must copy them to the replica sets.
func countAnnotationChange(_ context.Context, _ *resource.Env, d, old *appsv1.Deployment) {
	if !apiequality.Semantic.DeepEqual(d.Annotations, old.Annotations) {
		d.Generation = old.Generation + 1
	}
}

func validateDeployment(d *appsv1.Deployment) field.ErrorList {
	spec, path := &d.Spec, field.NewPath("spec")
	errs := slices.Concat(
		validateReplicaTemplate(spec.Replicas, spec.Selector, &spec.Template, path),
		validateDeploymentStrategy(&spec.Strategy, path.Child("strategy")),
		workload.ValidateCounts(path,
			workload.Of("minReadySeconds", spec.MinReadySeconds),
			workload.OfPtr("revisionHistoryLimit", spec.RevisionHistoryLimit),
			workload.OfPtr("progressDeadlineSeconds", spec.ProgressDeadlineSeconds)),
	)
	if deadline := spec.ProgressDeadlineSeconds; deadline != nil && *deadline <= spec.MinReadySeconds {
		errs = append(errs, field.Invalid(path.Child("progressDeadlineSeconds"), *deadline, "must be greater than minReadySeconds"))
	}
	return errs
}

func validateDeploymentStrategy(s *appsv1.DeploymentStrategy, path *field.Path) field.ErrorList {
	switch rolling := s.RollingUpdate; s.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if rolling != nil {
			return field.ErrorList{field.Forbidden(path.Child("rollingUpdate"), "may not be specified when strategy `type` is 'Recreate'")}
		}
		return nil
	case appsv1.RollingUpdateDeploymentStrategyType:
		path = path.Child("rollingUpdate")
		unavailable := path.Child("maxUnavailable")
		errs := slices.Concat(
			workload.ValidateIntOrPercent(rolling.MaxUnavailable, unavailable),
			workload.ValidateIntOrPercent(rolling.MaxSurge, path.Child("maxSurge")))
		if workload.Amount(rolling.MaxUnavailable) == 0 && workload.Amount(rolling.MaxSurge) == 0 {
			errs = append(errs, field.Invalid(unavailable, ptr.Deref(rolling.MaxUnavailable, intstr.IntOrString{}), "may not be 0 when `maxSurge` is 0"))
		}
		return slices.Concat(errs, workload.ValidateAtMost100Percent(rolling.MaxUnavailable, unavailable))
	default:
		return field.ErrorList{field.NotSupported(path, *s, []appsv1.DeploymentStrategyType{appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType})}
	}
}

func validateDeploymentUpdate(d, old *appsv1.Deployment) field.ErrorList {
	return apivalidation.ValidateImmutableField(d.Spec.Selector, old.Spec.Selector, field.NewPath("spec", "selector"))
}

func validateDeploymentStatus(d, old *appsv1.Deployment) field.ErrorList {
	s, path := &d.Status, field.NewPath("status")
	available := workload.Of("availableReplicas", s.AvailableReplicas)
	ready, updated := workload.Of("readyReplicas", s.ReadyReplicas), workload.Of("updatedReplicas", s.UpdatedReplicas)
	return slices.Concat(
		workload.ValidateCounts(path,
			workload.Of("observedGeneration", s.ObservedGeneration), workload.Of("replicas", s.Replicas), updated, ready, available,
			workload.Of("unavailableReplicas", s.UnavailableReplicas),
			workload.OfPtr("terminatingReplicas", s.TerminatingReplicas),
			workload.OfPtr("collisionCount", s.CollisionCount)),
		workload.ValidateAtMost(s.Replicas, "cannot be greater than status.replicas", path, updated, ready, available),
		workload.ValidateAtMost(s.ReadyReplicas, "cannot be greater than readyReplicas", path, available),
		workload.ValidateNotDecremented(s.CollisionCount, old.Status.CollisionCount, path.Child("collisionCount")),
	)
}
