package apps

import (
	"context"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/workload"
)

var daemonSets = resource.Type[*appsv1.DaemonSet]{
	Name: "daemonsets", ShortNames: []string{"ds"}, Categories: []string{"all"}, Namespaced: true,
	Default:  defaultDaemonSet,
	Validate: validateDaemonSet,
	Restrict: func(env *resource.Env, ds *appsv1.DaemonSet) field.ErrorList {
		return podspec.Restrict(env, &ds.Spec.Template.Spec, field.NewPath("spec", "template", "spec"))
	},
	ValidateUpdate: func(ds, old *appsv1.DaemonSet) field.ErrorList {
		return apivalidation.ValidateImmutableField(ds.Spec.Selector, old.Spec.Selector, field.NewPath("spec", "selector"))
	},
	Warn: func(ds, old *appsv1.DaemonSet) []string {
		return warnTemplate(ds, old, &ds.Spec.Template)
	},
	Generation: true,
	PrepareCreate: func(_ context.Context, _ *resource.Env, ds *appsv1.DaemonSet) {
		setTemplateGeneration(ds, max(templateGeneration(ds), 1))
	},
	PrepareUpdate: countTemplateChange,
	Status:        true,
	// A status without the annotation, as of a writer that sends the status alone, keeps it.
	PrepareStatus: func(_ *resource.Env, ds, old *appsv1.DaemonSet) {
		setTemplateGeneration(ds, templateGeneration(old))
	},
	ValidateStatus: validateDaemonSetStatus,
	Columns: slices.Concat(
		[]resource.Column[*appsv1.DaemonSet]{
			resource.Name[*appsv1.DaemonSet](),
			daemonCount("Desired", "desiredNumberScheduled", func(s *appsv1.DaemonSetStatus) int32 { return s.DesiredNumberScheduled }),
			daemonCount("Current", "currentNumberScheduled", func(s *appsv1.DaemonSetStatus) int32 { return s.CurrentNumberScheduled }),
			daemonCount("Ready", "numberReady", func(s *appsv1.DaemonSetStatus) int32 { return s.NumberReady }),
			daemonCount("Up-to-date", "updatedNumberScheduled", func(s *appsv1.DaemonSetStatus) int32 { return s.UpdatedNumberScheduled }),
			daemonCount("Available", "numberAvailable", func(s *appsv1.DaemonSetStatus) int32 { return s.NumberAvailable }),
			{Name: "Node Selector", Description: corev1.PodSpec{}.SwaggerDoc()["nodeSelector"],
				Value: func(ds *appsv1.DaemonSet) any { return labels.FormatLabels(ds.Spec.Template.Spec.NodeSelector) }},
			resource.Age[*appsv1.DaemonSet](),
		},
		resource.Wide(append(
			workload.ContainerColumns(func(ds *appsv1.DaemonSet) *corev1.PodTemplateSpec { return &ds.Spec.Template }),
			workload.SelectorColumn(appsv1.DaemonSetSpec{}.SwaggerDoc()["selector"], func(ds *appsv1.DaemonSet) *metav1.LabelSelector { return ds.Spec.Selector }),
		)...)),
}

// daemonCount is the column of one of the status's counters.
func daemonCount(heading, name string, count func(s *appsv1.DaemonSetStatus) int32) resource.Column[*appsv1.DaemonSet] {
	return resource.Column[*appsv1.DaemonSet]{Name: heading, Type: "integer", Description: appsv1.DaemonSetStatus{}.SwaggerDoc()[name],
		Value: func(ds *appsv1.DaemonSet) any { return int64(count(&ds.Status)) }}
}

func defaultDaemonSet(ds *appsv1.DaemonSet) {
	spec := &ds.Spec
	podspec.DefaultTemplate(&spec.Template)
	resource.Fill(&spec.RevisionHistoryLimit, 10)
	resource.FillEmpty(&spec.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		resource.Fill(&spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		resource.Fill(&spec.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		resource.Fill(&spec.UpdateStrategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
}

// countTemplateChange increments the annotation that counts the versions of the
// template. Clients cannot change it.
func countTemplateChange(_ context.Context, _ *resource.Env, ds, old *appsv1.DaemonSet) {
	n := templateGeneration(old)
	if !apiequality.Semantic.DeepEqual(ds.Spec.Template, old.Spec.Template) {
		n++
	}
	setTemplateGeneration(ds, n)
}

// templateGeneration returns the annotation's number, zero if there is none.
func templateGeneration(ds *appsv1.DaemonSet) int64 {
	n, err := strconv.ParseInt(ds.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func setTemplateGeneration(ds *appsv1.DaemonSet, n int64) {
	metav1.SetMetaDataAnnotation(&ds.ObjectMeta, appsv1.DeprecatedTemplateGeneration, strconv.FormatInt(n, 10))
}

func validateDaemonSet(ds *appsv1.DaemonSet) field.ErrorList {
	spec, path := &ds.Spec, field.NewPath("spec")
	return slices.Concat(
		workload.ValidateSelector(spec.Selector, "daemonset", path.Child("selector")),
		workload.ValidateSelected(&spec.Template, spec.Selector, path.Child("template")),
		podspec.ValidateTemplate(&spec.Template, path.Child("template")),
		workload.ValidateEndless(&spec.Template, "DaemonSet", path.Child("template")),
		workload.ValidateCounts(path,
			workload.Of("minReadySeconds", spec.MinReadySeconds),
			workload.OfPtr("revisionHistoryLimit", spec.RevisionHistoryLimit)),
		validateDaemonSetStrategy(&spec.UpdateStrategy, path.Child("updateStrategy")))
}

func validateDaemonSetStrategy(s *appsv1.DaemonSetUpdateStrategy, path *field.Path) field.ErrorList {
	switch s.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
		return nil
	case appsv1.RollingUpdateDaemonSetStrategyType:
		rolling := s.RollingUpdate
		unavailable, surge := path.Child("rollingUpdate", "maxUnavailable"), path.Child("rollingUpdate", "maxSurge")
		errs := slices.Concat(
			workload.ValidateIntOrPercent(rolling.MaxUnavailable, unavailable),
			workload.ValidateIntOrPercent(rolling.MaxSurge, surge),
			workload.ValidateAtMost100Percent(rolling.MaxUnavailable, unavailable),
			workload.ValidateAtMost100Percent(rolling.MaxSurge, surge))
		some, more := workload.Amount(rolling.MaxUnavailable) != 0, workload.Amount(rolling.MaxSurge) != 0
		if some && more {
			errs = append(errs, field.Invalid(surge, ptr.Deref(rolling.MaxSurge, intstr.IntOrString{}), "may not be set when maxUnavailable is non-zero"))
		}
		if !some && !more {
			errs = append(errs, field.Required(unavailable, "cannot be 0 when maxSurge is 0"))
		}
		return errs
	default:
		return field.ErrorList{field.NotSupported(path, *s, []appsv1.DaemonSetUpdateStrategyType{appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType})}
	}
}

func validateDaemonSetStatus(ds, old *appsv1.DaemonSet) field.ErrorList {
	s, path := &ds.Status, field.NewPath("status")
	return slices.Concat(
		workload.ValidateCounts(path,
			workload.Of("currentNumberScheduled", s.CurrentNumberScheduled),
			workload.Of("numberMisscheduled", s.NumberMisscheduled),
			workload.Of("desiredNumberScheduled", s.DesiredNumberScheduled),
			workload.Of("numberReady", s.NumberReady),
			workload.Of("observedGeneration", s.ObservedGeneration),
			workload.Of("updatedNumberScheduled", s.UpdatedNumberScheduled),
			workload.Of("numberAvailable", s.NumberAvailable),
			workload.Of("numberUnavailable", s.NumberUnavailable),
			workload.OfPtr("collisionCount", s.CollisionCount)),
		workload.ValidateNotDecremented(s.CollisionCount, old.Status.CollisionCount, path.Child("collisionCount")))
}
