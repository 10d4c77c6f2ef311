package customvalidation

import (
	"fmt"

	"k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

// withoutBranches returns a schema without anyOf, oneOf, allOf and not: the library makes
// the validators of these without options, so that they could not be parts.
func withoutBranches(schema *spec.Schema) *spec.Schema {
	if len(schema.AnyOf)+len(schema.OneOf)+len(schema.AllOf) == 0 && schema.Not == nil {
		return schema
	}
	bare := *schema
	bare.AnyOf, bare.OneOf, bare.AllOf, bare.Not = nil, nil, nil, nil
	return &bare
}

// addBranches adds to the result of the other rules for a value what anyOf, oneOf, allOf
// and not say of it, and returns the number of errors that are not listed. Of branches that
// are alternatives, the errors are those of the one with the most matches, as in the library.
// Within a branch, there is no comparison with the old value.
func (p *part) addBranches(result *validate.Result, value any) (unlisted int) {
	if value == nil { // only its type counts
		return 0
	}
	if len(p.schema.AnyOf) > 0 {
		best, more, valid := p.alternatives(p.schema.AnyOf, value)
		if valid == 0 {
			p.addError(result, validate.MustValidateAtLeastOneSchemaError)
		}
		result.Merge(best)
		unlisted += more
	}
	if len(p.schema.OneOf) > 0 {
		best, more, valid := p.alternatives(p.schema.OneOf, value)
		switch valid {
		case 0:
			p.addError(result, validate.MustValidateOnlyOneSchemaError, "Found none valid")
			fallthrough
		case 1:
			result.Merge(best)
			unlisted += more
		default:
			p.addError(result, validate.MustValidateOnlyOneSchemaError, fmt.Sprintf("Found %d valid alternatives", valid))
		}
	}
	valid := 0
	for i := range p.schema.AllOf {
		of, more := p.branch(&p.schema.AllOf[i], value)
		if of.IsValid() {
			valid++
		}
		result.Merge(of)
		unlisted += more
	}
	if valid < len(p.schema.AllOf) {
		none := ""
		if valid == 0 {
			none = ". None validated"
		}
		p.addError(result, validate.MustValidateAllSchemasError, none)
	}
	if p.schema.Not != nil {
		if of, _ := p.branch(p.schema.Not, value); of.IsValid() {
			p.addError(result, validate.MustNotValidateSchemaError)
		}
	}
	return unlisted
}

// addError adds an error of the value itself.
func (p *part) addError(result *validate.Result, format string, details ...any) {
	result.AddErrors(errors.New(errors.CompositeErrorCode, format, append([]any{p.path}, details...)...))
}

// alternatives returns the result of the first branch that is valid, or else of the one
// with the most matches, and how many are valid.
func (p *part) alternatives(branches []spec.Schema, value any) (best *validate.Result, unlisted, valid int) {
	for i := range branches {
		of, more := p.branch(&branches[i], value)
		better := best == nil || of.MatchCount > best.MatchCount
		if of.IsValid() {
			better = valid == 0
			valid++
		} else if valid > 0 {
			better = false
		}
		if better {
			best, unlisted = of, more
		}
	}
	return best, unlisted, valid
}

// branch validates the value against a branch, and returns the number of errors that the
// result does not list.
func (p *part) branch(schema *spec.Schema, value any) (of *validate.Result, unlisted int) {
	made := &part{schema: schema, path: p.path, siblings: &siblings{}}
	of = made.Validate(value)
	return of, made.siblings.unlisted
}
