package customvalidation

import (
	"reflect"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"

	"svc.dev/svc/apiserver/errorlimit"
)

// part validates a value within an object, by the library's validator, of which each level
// lists no more than errorlimit.Max errors and one. Errors of values that an update does not
// change do not count (ratcheting, KEP-4008).
type part struct {
	schema      *spec.Schema
	path        string
	correlation *common.CorrelatedObject // with the old value; nil if there is none
	siblings    *siblings
}

// siblings are the parts of one value.
type siblings struct {
	listed   int // errors
	unlisted int
}

var (
	_ validate.ValueValidator          = &part{}
	_ validation.SchemaCreateValidator = root{}
)

// root is the part that is a whole object, or its status.
type root struct{ *part }

// Validate implements validation.SchemaCreateValidator.
func (r root) Validate(value any, _ ...validation.ValidationOption) *validate.Result {
	return r.part.Validate(value)
}

// SetPath implements validate.ValueValidator. The library sets the path with the
// constructor.
func (p *part) SetPath(string) {}

// Applies implements validate.ValueValidator.
func (p *part) Applies(any, reflect.Kind) bool { return true }

// Validate implements validate.ValueValidator.
func (p *part) Validate(value any) *validate.Result {
	children := &siblings{}
	result := validate.NewSchemaValidator(withoutBranches(p.schema), nil, p.path, strfmt.Default, func(o *validate.SchemaValidatorOptions) {
		o.NewValidatorForIndex = func(i int, schema *spec.Schema, _ any, path string, _ strfmt.Registry, _ ...validate.Option) validate.ValueValidator {
			return &part{schema, path, p.correlation.Index(i), children}
		}
		o.NewValidatorForField = func(name string, schema *spec.Schema, _ any, path string, _ strfmt.Registry, _ ...validate.Option) validate.ValueValidator {
			return &part{schema, path, p.correlation.Key(name), children}
		}
	}).Validate(value)
	children.unlisted += p.addBranches(result, value)
	if !result.IsValid() && p.correlation.CachedDeepEqual() {
		return &validate.Result{MatchCount: result.MatchCount}
	}
	p.siblings.limit(result)
	p.siblings.unlisted += children.unlisted
	return result
}

// limit removes the errors that are too many, with those of the parts before, from the result
// of a part.
func (s *siblings) limit(result *validate.Result) {
	room := errorlimit.Max + 1 - s.listed
	if more := len(result.Errors) - room; more > 0 {
		result.Errors = result.Errors[:room]
		s.unlisted += more
	}
	s.listed += len(result.Errors)
}
