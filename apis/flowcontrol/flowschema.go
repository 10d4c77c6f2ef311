package flowcontrol

import (
	"cmp"
	"fmt"
	"slices"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	flowcontrolv1beta1 "k8s.io/api/flowcontrol/v1beta1"
	flowcontrolv1beta2 "k8s.io/api/flowcontrol/v1beta2"
	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	"svc.dev/svc/apis/resource"
)

var flowSchemas = resource.Type[*flowcontrolv1.FlowSchema]{
	Name: "flowschemas",
	Versions: []resource.Version{
		resource.Alike[flowcontrolv1.FlowSchema, flowcontrolv1beta3.FlowSchema](),
		resource.Alike[flowcontrolv1.FlowSchema, flowcontrolv1beta2.FlowSchema](),
		resource.Alike[flowcontrolv1.FlowSchema, flowcontrolv1beta1.FlowSchema](),
		resource.Also[flowcontrolv1beta1.FlowSchema](v1alpha1),
	},
	Default: func(fs *flowcontrolv1.FlowSchema) {
		fs.Spec.MatchingPrecedence = cmp.Or(fs.Spec.MatchingPrecedence, 1000)
	},
	Validate:   validateFlowSchema,
	Status:     true,
	StatusOnly: true,
	Generation: true,
	ValidateStatus: func(fs, _ *flowcontrolv1.FlowSchema) field.ErrorList {
		return validateConditionTypes(fs.Status.Conditions, func(c flowcontrolv1.FlowSchemaCondition) string { return string(c.Type) })
	},
	Columns: []resource.Column[*flowcontrolv1.FlowSchema]{
		resource.Name[*flowcontrolv1.FlowSchema](),
		{Name: "PriorityLevel", Description: flowcontrolv1.PriorityLevelConfigurationReference{}.SwaggerDoc()["name"],
			Value: func(fs *flowcontrolv1.FlowSchema) any { return fs.Spec.PriorityLevelConfiguration.Name }},
		{Name: "MatchingPrecedence", Description: flowSchemaDoc["matchingPrecedence"],
			Value: func(fs *flowcontrolv1.FlowSchema) any { return int64(fs.Spec.MatchingPrecedence) }},
		{Name: "DistinguisherMethod", Description: flowSchemaDoc["distinguisherMethod"], Value: func(fs *flowcontrolv1.FlowSchema) any {
			if fs.Spec.DistinguisherMethod == nil {
				return "<none>"
			}
			return string(fs.Spec.DistinguisherMethod.Type)
		}},
		resource.Age[*flowcontrolv1.FlowSchema](),
		{Name: "MissingPL", Description: "references a broken or non-existent PriorityLevelConfiguration", Value: missingPriorityLevel},
	},
	Order: func(a, b *flowcontrolv1.FlowSchema) int { // that in which a request tries them
		return cmp.Or(cmp.Compare(a.Spec.MatchingPrecedence, b.Spec.MatchingPrecedence), cmp.Compare(a.Name, b.Name))
	},
}

var flowSchemaDoc = flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()

func missingPriorityLevel(fs *flowcontrolv1.FlowSchema) any {
	for _, c := range fs.Status.Conditions {
		if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
			return string(c.Status)
		}
	}
	return "?"
}

func validateFlowSchema(fs *flowcontrolv1.FlowSchema) field.ErrorList {
	path := field.NewPath("spec")
	errs := validatePrecedence(path.Child("matchingPrecedence"), fs)
	if m := fs.Spec.DistinguisherMethod; m != nil {
		errs = append(errs, resource.OneOf(path.Child("distinguisherMethod", "type"), m.Type,
			flowcontrolv1.FlowDistinguisherMethodByNamespaceType, flowcontrolv1.FlowDistinguisherMethodByUserType)...)
	}
	level, levelPath := fs.Spec.PriorityLevelConfiguration.Name, path.Child("priorityLevelConfiguration", "name")
	if level == "" {
		errs = append(errs, field.Required(levelPath, "must reference a priority level"))
	} else {
		errs = append(errs, resource.Invalid(levelPath, level, apivalidation.NameIsDNSSubdomain(level, false))...)
	}
	for i := range fs.Spec.Rules {
		errs = append(errs, validateRules(path.Child("rules").Index(i), &fs.Spec.Rules[i])...)
	}
	for _, fixed := range bootstrap.MandatoryFlowSchemas {
		if fs.Name == fixed.Name && !apiequality.Semantic.DeepEqual(fs.Spec, fixed.Spec) {
			errs = append(errs, field.Invalid(path, fs.Spec, fmt.Sprintf("spec of '%s' must equal the fixed value", fs.Name)))
		}
	}
	return errs
}

func validatePrecedence(path *field.Path, fs *flowcontrolv1.FlowSchema) field.ErrorList {
	precedence := fs.Spec.MatchingPrecedence
	switch {
	case precedence <= 0:
		return field.ErrorList{field.Invalid(path, precedence, "must be a positive value")}
	case precedence > flowcontrolv1.FlowSchemaMaxMatchingPrecedence:
		return field.ErrorList{field.Invalid(path, precedence, fmt.Sprintf("must not be greater than %d", flowcontrolv1.FlowSchemaMaxMatchingPrecedence))}
	case precedence == 1 && fs.Name != bootstrap.MandatoryFlowSchemaExempt.Name:
		return field.ErrorList{field.Invalid(path, precedence, "only the schema named 'exempt' may have matchingPrecedence 1")}
	}
	return nil
}

// validateConditionTypes requires that every condition has a type and that no
// two have the same.
func validateConditionTypes[C any](conditions []C, typeOf func(C) string) field.ErrorList {
	var errs field.ErrorList
	var seen []string
	for i, c := range conditions {
		path, name := field.NewPath("status", "conditions").Index(i).Child("type"), typeOf(c)
		if slices.Contains(seen, name) {
			errs = append(errs, field.Duplicate(path, name))
		}
		if name == "" {
			errs = append(errs, field.Required(path, ""))
		}
		seen = append(seen, name)
	}
	return errs
}
