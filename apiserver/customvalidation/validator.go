package customvalidation

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"svc.dev/svc/apiserver/errorlimit"
)

// validator has what a version of a definition says about its objects.
type validator struct {
	schema     *spec.Schema // nil if the version has none
	structural *structuralschema.Structural
	rules      *cel.Validator // nil if there are none
	namespaced bool
	status     bool // whether the status is a subresource
}

type validatorOrError struct {
	*validator
	err error
}

func newValidator(definition *apiextensionsv1.CustomResourceDefinition, version string) validatorOrError {
	v := &validator{namespaced: definition.Spec.Scope == apiextensionsv1.NamespaceScoped}
	subresources, err := apihelpers.GetSubresourcesForVersion(definition, version)
	if err != nil {
		return validatorOrError{err: err}
	}
	v.status = subresources != nil && subresources.Status != nil
	declared, err := apihelpers.GetSchemaForVersion(definition, version)
	if err != nil || declared == nil || declared.OpenAPIV3Schema == nil {
		return validatorOrError{v, err}
	}
	var props apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(declared.OpenAPIV3Schema, &props, nil); err != nil {
		return validatorOrError{err: err}
	}
	if _, v.schema, err = validation.NewSchemaValidator(&props); err != nil {
		return validatorOrError{err: err}
	}
	if v.structural, err = structuralschema.NewStructural(&props); err != nil {
		if definition.Spec.PreserveUnknownFields { // of v1beta1, which allowed any schema: the library validates alone
			return validatorOrError{&validator{}, nil}
		}
		return validatorOrError{err: err}
	}
	v.rules = cel.NewValidator(v.structural, true, celconfig.PerCallLimit)
	return validatorOrError{v, nil}
}

// errorsOf returns the errors that the library finds in an object, in the library's order of
// checks, and the number of others. If there are more than errorlimit.Max, not all
// checks are made. old is nil for a new object.
func (v *validator) errorsOf(ctx context.Context, obj, old *unstructured.Unstructured, subresource string) (field.ErrorList, int) {
	value := v.stored(obj, old, subresource)
	if v.schema == nil || sizeOf(value) < large {
		return nil, 0
	}
	if old == nil {
		return v.validate(ctx, write{obj: obj, value: value, subresource: subresource}, true)
	}
	// Without the comparison with the old object there are as many errors, or more.
	update := write{obj: obj, value: value, before: old.Object, subresource: subresource}
	if errs, unlisted := v.validate(ctx, update, false); len(errs) <= errorlimit.Max {
		return errs, unlisted
	}
	update.correlation = common.NewCorrelatedObject(value, old.Object, &model.Structural{Structural: v.structural})
	return v.validate(ctx, update, true)
}

// write is a create or an update of an object.
type write struct {
	obj         *unstructured.Unstructured
	value       map[string]any           // its content, as it will be stored
	before      map[string]any           // nil for a create
	correlation *common.CorrelatedObject // of both; nil if they are not compared
	subresource string
}

// validate returns the errors of a write. exact is false if errors count that the comparison
// with the old object would remove.
func (v *validator) validate(ctx context.Context, w write, exact bool) (field.ErrorList, int) {
	errs := apivalidation.ValidateObjectMetaAccessor(w.obj, v.namespaced, func(string, bool) []string { return nil }, field.NewPath("metadata"))
	parts, unlisted := v.partErrors(w.value, w.correlation, w.subresource)
	errs = append(errs, parts...)
	errs = append(errs, objectmeta.Validate(ctx, nil, w.value, v.structural, false)...)
	if len(listtype.ValidateListSetsAndMaps(nil, v.structural, w.before)) == 0 {
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, v.structural, w.value)...)
	}
	if v.rules == nil || len(errs) > errorlimit.Max || exact && slices.ContainsFunc(errs, preventsRules) {
		return errs, unlisted
	}
	var options []cel.Option
	var before any // not a map that is nil
	if w.before != nil {
		before = w.before
	}
	if w.correlation != nil {
		options = append(options, cel.WithRatcheting(w.correlation))
	}
	broken, _ := v.rules.Validate(ctx, nil, v.structural, w.value, before, celconfig.RuntimeCELCostBudget, options...)
	return append(errs, broken...), unlisted
}

// stored returns the content that an object is about to be stored with: a request for an
// object does not change the status that is a subresource, and one for the status
// nothing else.
func (v *validator) stored(obj, old *unstructured.Unstructured, subresource string) map[string]any {
	base, status := obj.Object, obj.Object
	switch {
	case !v.status:
		return obj.Object
	case old == nil:
		status = nil
	case subresource == "status":
		base = old.Object
	default:
		status = old.Object
	}
	value := maps.Clone(base)
	delete(value, "status")
	if of, ok := status["status"]; ok {
		value["status"] = of
	}
	return value
}

// partErrors validates a value against the schema, or its status alone.
func (v *validator) partErrors(value map[string]any, correlation *common.CorrelatedObject, subresource string) (field.ErrorList, int) {
	if subresource != "status" {
		whole := &part{schema: v.schema, correlation: correlation, siblings: &siblings{}}
		return validation.ValidateCustomResource(nil, value, root{whole}), whole.siblings.unlisted
	}
	schema, ok := v.schema.Properties["status"]
	if !ok {
		return nil, 0
	}
	whole := &part{schema: &schema, correlation: correlation.Key("status"), siblings: &siblings{}}
	return validation.ValidateCustomResource(field.NewPath("status"), value["status"], root{whole}), whole.siblings.unlisted
}

// preventsRules reports whether the library does not evaluate the rules of an object that has
// the error.
func preventsRules(err *field.Error) bool {
	return slices.Contains([]field.ErrorType{
		field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid,
	}, err.Type)
}
