package core

import (
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// featureName is the form of a feature's name: segments in camel case, the first of
// which begins with a capital letter.
var featureName = regexp.MustCompile(`^[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*$`)

// validateDeclaredFeatures validates the features that a node reports, which are
// sorted and unique (KEP-5328).
func validateDeclaredFeatures(features []string) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status", "declaredFeatures")
	for i, name := range features {
		at := path.Index(i)
		if i > 0 && name == features[i-1] {
			errs = append(errs, field.Duplicate(at, name))
		} else if i > 0 && name < features[i-1] {
			errs = append(errs, field.Invalid(at, name, "list must be sorted alphabetically"))
		}
		if len(name) > validation.DNS1123SubdomainMaxLength {
			errs = append(errs, field.Invalid(at, name, fmt.Sprintf("invalid feature name %q: must be no more than %d characters", name, validation.DNS1123SubdomainMaxLength)))
		} else if !featureName.MatchString(name) {
			errs = append(errs, field.Invalid(at, name, fmt.Sprintf("invalid feature name %q: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes", name)))
		}
	}
	return errs
}
