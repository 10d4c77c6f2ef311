package storage

import (
	"maps"

	storagev1 "k8s.io/api/storage/v1"
	storagev1alpha1 "k8s.io/api/storage/v1alpha1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

var volumeAttributesClasses = resource.Type[*storagev1.VolumeAttributesClass]{
	Name: "volumeattributesclasses", ShortNames: []string{"vac"}, ReturnDeleted: true,
	Versions: []resource.Version{resource.Alike[storagev1.VolumeAttributesClass, storagev1beta1.VolumeAttributesClass](), resource.Alike[storagev1.VolumeAttributesClass, storagev1alpha1.VolumeAttributesClass]()},
	Validate: func(c *storagev1.VolumeAttributesClass) field.ErrorList {
		path := field.NewPath("parameters")
		errs := append(validateDriver(field.NewPath("driverName"), c.DriverName), validateParameters(path, c.Parameters)...)
		if len(c.Parameters) == 0 {
			errs = append(errs, field.Required(path, "must contain at least one key/value pair"))
		}
		return errs
	},
	ValidateUpdate: func(c, old *storagev1.VolumeAttributesClass) field.ErrorList {
		var errs field.ErrorList
		if c.DriverName != old.DriverName {
			errs = append(errs, field.Forbidden(field.NewPath("driverName"), "updates to driverName are forbidden."))
		}
		if !maps.Equal(c.Parameters, old.Parameters) {
			errs = append(errs, field.Forbidden(field.NewPath("parameters"), "updates to parameters are forbidden."))
		}
		return errs
	},
	Columns: []resource.Column[*storagev1.VolumeAttributesClass]{
		resource.Name[*storagev1.VolumeAttributesClass](),
		{Name: "DriverName", Description: storagev1.VolumeAttributesClass{}.SwaggerDoc()["driverName"],
			Value: func(c *storagev1.VolumeAttributesClass) any { return c.DriverName }},
		resource.Age[*storagev1.VolumeAttributesClass](),
	},
}
