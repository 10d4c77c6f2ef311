package coordination

import (
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

var leases = resource.Type[*coordinationv1.Lease]{
	Name: "leases", Namespaced: true, AnyFinalizer: true,
	Versions:       []resource.Version{resource.Alike[coordinationv1.Lease, coordinationv1beta1.Lease]()},
	Validate:       validateLease,
	CreateOnUpdate: true,
	RequireVersion: true,
	Columns: []resource.Column[*coordinationv1.Lease]{
		resource.Name[*coordinationv1.Lease](),
		{Name: "Holder", Description: coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"], Value: func(l *coordinationv1.Lease) any {
			if l.Spec.HolderIdentity == nil {
				return ""
			}
			return *l.Spec.HolderIdentity
		}},
		resource.Age[*coordinationv1.Lease](),
	},
}

func validateLease(l *coordinationv1.Lease) field.ErrorList {
	var errs field.ErrorList
	spec, path := l.Spec, field.NewPath("spec")
	if d := spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		errs = append(errs, field.Invalid(path.Child("leaseDurationSeconds"), *d, "must be greater than 0"))
	}
	if n := spec.LeaseTransitions; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(path.Child("leaseTransitions"), *n, "must be greater than or equal to 0"))
	}
	if spec.Strategy != nil {
		errs = append(errs, validateStrategy(path.Child("strategy"), *spec.Strategy)...)
	}
	if p := spec.PreferredHolder; p != nil && *p != "" && (spec.Strategy == nil || *spec.Strategy == "") {
		errs = append(errs, field.Forbidden(path.Child("preferredHolder"), "may only be specified if `strategy` is defined"))
	}
	return errs
}

// validateStrategy accepts the strategies that Kubernetes defines and, for
// those of others, names with a domain.
func validateStrategy(path *field.Path, strategy coordinationv1.CoordinatedLeaseStrategy) field.ErrorList {
	if strings.Contains(string(strategy), "/") {
		return resource.Invalid(path, strategy, validation.IsQualifiedName(string(strategy)))
	}
	return resource.OneOf(path, strategy, coordinationv1.OldestEmulationVersion)
}
