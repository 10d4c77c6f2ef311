// Package storagemigration declares the kinds of the storagemigration.k8s.io group.
package storagemigration

import (
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// Kinds returns the kinds of the storagemigration.k8s.io group.
func Kinds() []resource.Declaration {
	return []resource.Declaration{
		storageVersionMigrations,
	}
}

var storageVersionMigrations = resource.Type[*storagemigrationv1.StorageVersionMigration]{
	Name: "storageversionmigrations",
	Versions: []resource.Version{
		resource.Alike[storagemigrationv1.StorageVersionMigration, storagemigrationv1beta1.StorageVersionMigration](),
	},
	Validate: validateMigration,
	ValidateUpdate: func(m, old *storagemigrationv1.StorageVersionMigration) field.ErrorList {
		return apivalidation.ValidateImmutableField(m.Spec, old.Spec, field.NewPath("spec"))
	},
	RequireVersion: true,
	Status:         true,
	StatusOnly:     true,
	ValidateStatus: validateMigrationStatus,
	Columns: []resource.Column[*storagemigrationv1.StorageVersionMigration]{
		resource.Name[*storagemigrationv1.StorageVersionMigration](),
		{Name: "Resource", Description: storagemigrationv1.StorageVersionMigrationSpec{}.SwaggerDoc()["resource"],
			Value: func(m *storagemigrationv1.StorageVersionMigration) any { return m.Spec.Resource.String() }},
		resource.Age[*storagemigrationv1.StorageVersionMigration](),
	},
}

func validateMigration(m *storagemigrationv1.StorageVersionMigration) field.ErrorList {
	path, r := field.NewPath("spec", "resource"), m.Spec.Resource
	var errs field.ErrorList
	if r.Resource == "" {
		errs = append(errs, field.Required(path.Child("resource"), "resource is required to be set"))
	} else {
		errs = append(errs, resource.Invalid(path.Child("resource"), r.Resource, validation.IsDNS1035Label(r.Resource))...)
	}
	if r.Group != "" {
		errs = append(errs, resource.Invalid(path.Child("group"), r.Group, validation.IsDNS1123Subdomain(r.Group))...)
	}
	return errs
}

// validateMigrationStatus allows a migration to end once: it has succeeded or failed.
func validateMigrationStatus(m, old *storagemigrationv1.StorageVersionMigration) field.ErrorList {
	path := field.NewPath("status", "conditions")
	errs := append(validateMigratedVersion(m.Status.ResourceVersion, old.Status.ResourceVersion), metav1validation.ValidateConditions(m.Status.Conditions, path)...)
	succeeded, failed := is(m, storagemigrationv1.MigrationSucceeded), is(m, storagemigrationv1.MigrationFailed)
	if succeeded && failed {
		errs = append(errs, field.Invalid(path, m.Status.Conditions, "Both success and failed conditions cannot be true at the same time"))
	}
	if is(old, storagemigrationv1.MigrationSucceeded) && !succeeded {
		errs = append(errs, field.Invalid(path, m.Status.Conditions, "Success condition cannot be set to false once it is true"))
	}
	if is(old, storagemigrationv1.MigrationFailed) && !failed {
		errs = append(errs, field.Invalid(path, m.Status.Conditions, "Failed condition cannot be set to false once it is true"))
	}
	return errs
}

// validateMigratedVersion allows the version up to which objects are migrated to be set once.
func validateMigratedVersion(version, old string) field.ErrorList {
	path := field.NewPath("status", "resourceVersion")
	var errs field.ErrorList
	if version != "" {
		if _, err := resourceversion.CompareResourceVersion(version, version); err != nil {
			errs = append(errs, field.Invalid(path, version, err.Error()))
		}
	}
	if old != "" && version != old {
		errs = append(errs, field.Invalid(path, version, apivalidation.FieldImmutableErrorMsg))
	}
	return errs
}

func is(m *storagemigrationv1.StorageVersionMigration, condition storagemigrationv1.MigrationConditionType) bool {
	for _, c := range m.Status.Conditions {
		if c.Type == string(condition) {
			return c.Status == "True"
		}
	}
	return false
}
