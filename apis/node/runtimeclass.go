package node

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	nodev1beta1 "k8s.io/api/node/v1beta1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

var runtimeClasses = resource.Type[*nodev1.RuntimeClass]{
	Name: "runtimeclasses", AnyFinalizer: true,
	Versions: []resource.Version{
		resource.Alike[nodev1.RuntimeClass, nodev1beta1.RuntimeClass](),
		resource.Convert(classFromV1alpha1, classToV1alpha1),
	},
	Validate: validateRuntimeClass,
	ValidateUpdate: func(c, old *nodev1.RuntimeClass) field.ErrorList {
		return apivalidation.ValidateImmutableField(c.Handler, old.Handler, field.NewPath("handler"))
	},
	Warn: func(c, _ *nodev1.RuntimeClass) []string {
		if c.Scheduling == nil {
			return nil
		}
		return podspec.WarnNodeLabels(c.Scheduling.NodeSelector, field.NewPath("scheduling", "nodeSelector"))
	},
	CreateOnUpdate: true,
	RequireVersion: true,
	Columns: []resource.Column[*nodev1.RuntimeClass]{
		resource.Name[*nodev1.RuntimeClass](),
		{Name: "Handler", Description: nodev1.RuntimeClass{}.SwaggerDoc()["handler"], Value: func(c *nodev1.RuntimeClass) any { return c.Handler }},
		resource.Age[*nodev1.RuntimeClass](),
	},
}

func validateRuntimeClass(c *nodev1.RuntimeClass) field.ErrorList {
	var errs field.ErrorList
	if c.Handler == "" {
		errs = append(errs, field.Required(field.NewPath("handler"), ""))
	} else {
		errs = append(errs, resource.Invalid(field.NewPath("handler"), c.Handler, apivalidation.NameIsDNSLabel(c.Handler, false))...)
	}
	if c.Overhead != nil {
		errs = append(errs, podspec.ValidateOverhead(c.Overhead.PodFixed, field.NewPath("overhead"))...)
	}
	if c.Scheduling != nil {
		path := field.NewPath("scheduling")
		errs = append(errs, metav1validation.ValidateLabels(c.Scheduling.NodeSelector, path.Child("nodeSelector"))...)
		errs = append(errs, validateTolerations(path.Child("tolerations"), c.Scheduling.Tolerations)...)
	}
	return errs
}

func validateTolerations(path *field.Path, tolerations []corev1.Toleration) field.ErrorList {
	errs := podspec.ValidateTolerations(tolerations, path)
	for i, t := range tolerations {
		if slices.ContainsFunc(tolerations[:i], func(other corev1.Toleration) bool {
			return other.Key == t.Key && other.Operator == t.Operator && other.Value == t.Value && other.Effect == t.Effect
		}) {
			errs = append(errs, field.Duplicate(path.Index(i), t))
		}
	}
	return errs
}
