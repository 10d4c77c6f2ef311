package coordination

import (
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1alpha2 "k8s.io/api/coordination/v1alpha2"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
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
	// The names and finalizers of candidates follow no rule but that of a path's segment and that of a ConfigMap's key.
	NameRule:       func(name string, _ bool) []string { return validation.IsConfigMapKey(name) },
	AnyFinalizer:   true,
	CreateOnUpdate: true,
	RequireVersion: true,
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
	binaryPath, emulatedPath, strategyPath := path.Child("binaryVersion"), path.Child("emulationVersion"), path.Child("strategy")
	errs := append(resource.Required(path.Child("leaseName"), spec.LeaseName), resource.Required(binaryPath, spec.BinaryVersion)...)
	binary, binaryErrs := parseVersion(binaryPath, spec.BinaryVersion)
	emulated, emulatedErrs := parseVersion(emulatedPath, spec.EmulationVersion)
	errs = slices.Concat(errs, binaryErrs, emulatedErrs)
	if spec.BinaryVersion != "" && spec.EmulationVersion != "" && binary.LessThan(emulated) {
		errs = append(errs, field.Invalid(binaryPath, spec.BinaryVersion, "must be greater than or equal to `emulationVersion`"))
	}
	if spec.Strategy == "" {
		return append(errs, field.Required(strategyPath, ""))
	}
	if spec.Strategy == coordinationv1.OldestEmulationVersion && emulated.EqualTo(zeroVersion) {
		errs = append(errs, field.Required(emulatedPath, "must be specified when `strategy` is 'OldestEmulationVersion'"))
	}
	return append(errs, validateStrategy(strategyPath, spec.Strategy)...)
}

var zeroVersion = version.MustParseSemantic("0.0.0")

// parseVersion returns a version, which is zero if there is none or an invalid one.
func parseVersion(path *field.Path, v string) (*version.Version, field.ErrorList) {
	if v == "" {
		return zeroVersion, nil
	}
	parsed, err := version.ParseSemantic(v)
	if err != nil {
		return zeroVersion, field.ErrorList{field.Invalid(path, v, "must be a valid semantic version")}
	}
	return parsed, nil
}
