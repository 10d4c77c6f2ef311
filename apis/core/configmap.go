package core

import (
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

var configMaps = resource.Type[*corev1.ConfigMap]{
	Name: "configmaps", ShortNames: []string{"cm"}, Namespaced: true,
	Validate:       validateConfigMap,
	ValidateUpdate: validateConfigMapUpdate,
	Columns: []resource.Column[*corev1.ConfigMap]{
		resource.Name[*corev1.ConfigMap](),
		{Name: "Data", Description: corev1.ConfigMap{}.SwaggerDoc()["data"],
			Value: func(c *corev1.ConfigMap) any { return int64(len(c.Data) + len(c.BinaryData)) }},
		resource.Age[*corev1.ConfigMap](),
	},
}

func validateConfigMap(c *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	total := 0
	for key, value := range c.Data {
		for _, msg := range validation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(field.NewPath("data").Key(key), key, msg))
		}
		if _, twice := c.BinaryData[key]; twice {
			errs = append(errs, field.Invalid(field.NewPath("data").Key(key), key, "duplicate of key present in binaryData"))
		}
		total += len(value)
	}
	for key, value := range c.BinaryData {
		for _, msg := range validation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(field.NewPath("binaryData").Key(key), key, msg))
		}
		total += len(value)
	}
	if total > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(field.NewPath(""), "", corev1.MaxSecretSize))
	}
	return errs
}

func validateConfigMapUpdate(c, old *corev1.ConfigMap) field.ErrorList {
	if old.Immutable == nil || !*old.Immutable {
		return nil
	}
	var errs field.ErrorList
	const msg = "field is immutable when `immutable` is set"
	if c.Immutable == nil || !*c.Immutable {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), msg))
	}
	for _, f := range []struct {
		name     string
		obj, old any
	}{{"data", c.Data, old.Data}, {"binaryData", c.BinaryData, old.BinaryData}} {
		if !apiequality.Semantic.DeepEqual(f.obj, f.old) {
			errs = append(errs, field.Forbidden(field.NewPath(f.name), msg))
		}
	}
	return errs
}
