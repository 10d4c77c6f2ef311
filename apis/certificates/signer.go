package certificates

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// APIServerServing is the signer of the certificates with which API servers serve. The
// controller kube-apiserver-serving-clustertrustbundle-publisher owns its bundles.
const APIServerServing = "kubernetes.io/kube-apiserver-serving"

// maxSigner is the greatest length of a signer's name: a domain, and a path
// that may hold a namespace and the name of an object.
const maxSigner = 2*validation.DNS1123SubdomainMaxLength + validation.DNS1123LabelMaxLength + 2

// validateSigner requires a name of the form example.com/signer-name.
func validateSigner(path *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	domain, signer, ok := strings.Cut(name, "/")
	if !ok || strings.Contains(signer, "/") {
		return field.ErrorList{field.Invalid(path, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")}
	}
	var errs field.ErrorList
	if len(domain) > validation.DNS1123SubdomainMaxLength {
		errs = append(errs, field.TooLong(path, "", validation.DNS1123SubdomainMaxLength))
	}
	errs = append(errs, validateLabels(path, domain, validation.IsDNS1123Label)...)
	if !strings.Contains(domain, ".") {
		errs = append(errs, field.Invalid(path, domain, "should be a domain with at least two segments separated by dots"))
	}
	errs = append(errs, validateLabels(path, signer, validation.IsDNS1123Subdomain)...)
	if len(name) > maxSigner {
		errs = append(errs, field.TooLong(path, "", maxSigner))
	}
	return errs
}

// validateLabels validates the labels of a dotted name up to the first bad one.
func validateLabels(path *field.Path, name string, rule func(string) []string) field.ErrorList {
	for _, label := range strings.Split(name, ".") {
		var errs field.ErrorList
		for _, msg := range rule(label) {
			errs = append(errs, field.Invalid(path, name, fmt.Sprintf("validating label %q: %s", label, msg)))
		}
		if len(errs) > 0 {
			return errs
		}
	}
	return nil
}
