package devices

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

var deviceClasses = resource.Type[*resourcev1.DeviceClass]{
	Name: "deviceclasses",
	Versions: []resource.Version{
		resource.Alike[resourcev1.DeviceClass, resourcev1beta2.DeviceClass](),
		resource.Alike[resourcev1.DeviceClass, resourcev1beta1.DeviceClass](),
	},
	ValidateCreate: func(c *resourcev1.DeviceClass) field.ErrorList { return validateClass(c, nil) },
	ValidateUpdate: validateClass,
	Generation:     true,
	Columns: []resource.Column[*resourcev1.DeviceClass]{
		resource.Name[*resourcev1.DeviceClass](),
		resource.Age[*resourcev1.DeviceClass](),
	},
}

// validateClass validates a class, which replaces old unless that is nil. Selectors that
// are all as they were are not compiled, so that a class which an earlier version of the
// server has stored can be updated; parameters that are all as they were are not measured.
func validateClass(c, old *resourcev1.DeviceClass) field.ErrorList {
	path := field.NewPath("spec")
	stored := old != nil && equality.Semantic.DeepEqual(c.Spec.Selectors, old.Spec.Selectors)
	errs := validateSelectors(path.Child("selectors"), c.Spec.Selectors, stored)
	stored = old != nil && equality.Semantic.DeepEqual(c.Spec.Config, old.Spec.Config)
	errs = append(errs, each(path.Child("config"), c.Spec.Config, resourcev1.DeviceConfigMaxSize, func(at *field.Path, conf *resourcev1.DeviceClassConfiguration) field.ErrorList {
		return validateConfiguration(at, &conf.DeviceConfiguration, stored)
	})...)
	if name := c.Spec.ExtendedResourceName; name != nil && !podspec.IsExtendedResource(corev1.ResourceName(*name)) {
		errs = append(errs, field.Invalid(path.Child("extendedResourceName"), *name, "must be a valid extended resource name"))
	}
	return errs
}
