package coordination

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1alpha2 "k8s.io/api/coordination/v1alpha2"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"

	"svc.dev/svc/apis/resource"
)

// leaseCandidates announce what wants to become the holder of a lease.
var leaseCandidates = resource.Type[*coordinationv1beta1.LeaseCandidate]{
	Name: "leasecandidates", Namespaced: true,
	Versions: []resource.Version{
		resource.Alike[coordinationv1beta1.LeaseCandidate, coordinationv1alpha2.LeaseCandidate](),
	},
	Validate: validateCandidate,
	ValidateUpdate: func(c, old *coordinationv1beta1.LeaseCandidate) field.ErrorList {
		return apivalidation.ValidateImmutableField(c.Spec.LeaseName, old.Spec.LeaseName, field.NewPath("spec", "leaseName"))
	},
	CreateOnUpdate: true,
	Columns: []resource.Column[*coordinationv1beta1.LeaseCandidate]{
		resource.Name[*coordinationv1beta1.LeaseCandidate](),
		candidateColumn("LeaseName", "leaseName", func(s *coordinationv1beta1.LeaseCandidateSpec) any { return s.LeaseName }),
		candidateColumn("BinaryVersion", "binaryVersion", func(s *coordinationv1beta1.LeaseCandidateSpec) any { return s.BinaryVersion }),
		candidateColumn("EmulationVersion", "emulationVersion", func(s *coordinationv1beta1.LeaseCandidateSpec) any { return s.EmulationVersion }),
		resource.Age[*coordinationv1beta1.LeaseCandidate](),
	},
}

func candidateColumn(name, property string, value func(*coordinationv1beta1.LeaseCandidateSpec) any) resource.Column[*coordinationv1beta1.LeaseCandidate] {
	return resource.Column[*coordinationv1beta1.LeaseCandidate]{
		Name: name, Description: coordinationv1beta1.LeaseCandidateSpec{}.SwaggerDoc()[property],
		Value: func(c *coordinationv1beta1.LeaseCandidate) any { return value(&c.Spec) },
	}
}

func validateCandidate(c *coordinationv1beta1.LeaseCandidate) field.ErrorList {
	spec, path := &c.Spec, field.NewPath("spec")
	errs := resource.Required(path.Child("leaseName"), spec.LeaseName)
	errs = append(errs, resource.Required(path.Child("binaryVersion"), spec.BinaryVersion)...)
	errs = append(errs, validateVersion(path.Child("binaryVersion"), spec.BinaryVersion)...)
	errs = append(errs, validateVersion(path.Child("emulationVersion"), spec.EmulationVersion)...)
	if spec.Strategy == "" {
		errs = append(errs, field.Required(path.Child("strategy"), ""))
	}
	if spec.Strategy == coordinationv1.OldestEmulationVersion {
		errs = append(errs, resource.Required(path.Child("emulationVersion"), spec.EmulationVersion)...)
		binary, err := version.ParseSemantic(spec.BinaryVersion)
		emulated, emulatedErr := version.ParseSemantic(spec.EmulationVersion)
		if err == nil && emulatedErr == nil && binary.LessThan(emulated) {
			errs = append(errs, field.Invalid(path.Child("binaryVersion"), spec.BinaryVersion, "must be greater than or equal to emulationVersion"))
		}
	}
	return errs
}

func validateVersion(path *field.Path, v string) field.ErrorList {
	if v == "" {
		return nil
	}
	if _, err := version.ParseSemantic(v); err != nil {
		return field.ErrorList{field.Invalid(path, v, err.Error())}
	}
	return nil
}
