package admissionregistration

import (
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	admissionv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// maxMatchConditions is the greatest number of match conditions of a webhook
// or policy.
const maxMatchConditions = 64

func defaultMatch(m *admissionv1.MatchResources) {
	if m == nil {
		return
	}
	resource.Fill(&m.MatchPolicy, admissionv1.Equivalent)
	resource.Fill(&m.NamespaceSelector, metav1.LabelSelector{})
	resource.Fill(&m.ObjectSelector, metav1.LabelSelector{})
	for _, rules := range [][]admissionv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			resource.Fill(&rules[i].Scope, admissionv1.AllScopes)
		}
	}
}

// defaultParamRefV1alpha1 fills in what v1alpha1 has by default, and releases without the field
// do; later versions require the field.
func defaultParamRefV1alpha1(r *admissionv1alpha1.ParamRef) {
	if r != nil {
		resource.Fill(&r.ParameterNotFoundAction, admissionv1alpha1.DenyAction)
	}
}

// validateMatch validates which requests a policy or, optionally, a binding
// selects.
func validateMatch(path *field.Path, m *admissionv1.MatchResources) field.ErrorList {
	if m == nil {
		return nil
	}
	errs := validateMatchPolicy(path.Child("matchPolicy"), *m.MatchPolicy)
	errs = append(errs, validateSelector(path.Child("namespaceSelector"), m.NamespaceSelector)...)
	errs = append(errs, validateSelector(path.Child("objectSelector"), m.ObjectSelector)...)
	for i := range m.ResourceRules {
		errs = append(errs, validateNamedRule(path.Child("resourceRules").Index(i), &m.ResourceRules[i])...)
	}
	for i := range m.ExcludeResourceRules {
		errs = append(errs, validateNamedRule(path.Child("excludeResourceRules").Index(i), &m.ExcludeResourceRules[i])...)
	}
	return errs
}

// validateMatchConstraints validates the selection of a policy, which must have
// one.
func validateMatchConstraints(path *field.Path, m *admissionv1.MatchResources) field.ErrorList {
	if m == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := validateMatch(path, m)
	if len(m.ResourceRules) == 0 {
		errs = append(errs, field.Required(path.Child("resourceRules"), ""))
	}
	return errs
}

func validateFailurePolicy(path *field.Path, p admissionv1.FailurePolicyType) field.ErrorList {
	return resource.OneOf(path, p, admissionv1.Fail, admissionv1.Ignore)
}

func validateMatchPolicy(path *field.Path, p admissionv1.MatchPolicyType) field.ErrorList {
	return resource.OneOf(path, p, admissionv1.Equivalent, admissionv1.Exact)
}

func validateSelector(path *field.Path, s *metav1.LabelSelector) field.ErrorList {
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path)
}

func validateMatchConditions(path *field.Path, conditions []admissionv1.MatchCondition) field.ErrorList {
	var errs field.ErrorList
	if len(conditions) > maxMatchConditions {
		errs = append(errs, field.TooMany(path, len(conditions), maxMatchConditions))
	}
	var names []string
	for i, c := range conditions {
		at := path.Index(i)
		errs = append(errs, requireExpression(at.Child("expression"), c.Expression, "")...)
		switch {
		case c.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case slices.Contains(names, c.Name):
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		default:
			errs = append(errs, resource.Invalid(at.Child("name"), c.Name, validation.IsQualifiedName(c.Name))...)
		}
		names = append(names, c.Name)
	}
	return errs
}

// requireExpression requires a CEL expression of more than white space.
func requireExpression(path *field.Path, expression, message string) field.ErrorList {
	if strings.TrimSpace(expression) == "" {
		return field.ErrorList{field.Required(path, message)}
	}
	return nil
}

// celReserved are the words that the CEL grammar keeps for itself.
var celReserved = []string{"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if",
	"import", "let", "loop", "package", "namespace", "return", "var", "void", "while"}

func validateVariables(path *field.Path, variables []admissionv1.Variable) field.ErrorList {
	var errs field.ErrorList
	for i, v := range variables {
		at := path.Index(i)
		if strings.TrimSpace(v.Name) == "" {
			errs = append(errs, field.Required(at.Child("name"), "name is not specified"))
		} else if len(validation.IsCIdentifier(v.Name)) > 0 || slices.Contains(celReserved, v.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), v.Name, "must be a valid CEL identifier"))
		}
		errs = append(errs, requireExpression(at.Child("expression"), v.Expression, "expression is not specified")...)
	}
	return errs
}

func validateParamKind(path *field.Path, k *admissionv1.ParamKind) field.ErrorList {
	if k == nil {
		return nil
	}
	errs := validateParamVersion(path.Child("apiVersion"), k.APIVersion)
	if k.Kind == "" {
		return append(errs, field.Required(path.Child("kind"), ""))
	}
	if msgs := validation.IsDNS1035Label(strings.ToLower(k.Kind)); len(msgs) > 0 {
		errs = append(errs, field.Invalid(path.Child("kind"), k.Kind, "may have mixed case, but should otherwise match: "+strings.Join(msgs, ",")))
	}
	return errs
}

func validateParamVersion(path *field.Path, apiVersion string) field.ErrorList {
	if apiVersion == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return field.ErrorList{field.Invalid(path, apiVersion, err.Error())}
	}
	var errs field.ErrorList
	if msgs := validation.IsDNS1123Subdomain(gv.Group); gv.Group != "" && len(msgs) > 0 {
		errs = append(errs, field.Invalid(path, gv.Group, strings.Join(msgs, ",")))
	}
	if gv.Version == "" {
		return append(errs, field.Invalid(path, apiVersion, "version must be specified"))
	}
	if msgs := validation.IsDNS1035Label(gv.Version); len(msgs) > 0 {
		errs = append(errs, field.Invalid(path, gv.Version, strings.Join(msgs, ",")))
	}
	return errs
}

// validateBinding validates what the bindings of both kinds of policy have in
// common.
func validateBinding(path *field.Path, policy string, params *admissionv1.ParamRef, match *admissionv1.MatchResources) field.ErrorList {
	var errs field.ErrorList
	if policy == "" {
		errs = append(errs, field.Required(path.Child("policyName"), ""))
	} else {
		errs = append(errs, resource.Invalid(path.Child("policyName"), policy, apivalidation.NameIsDNSSubdomain(policy, false))...)
	}
	errs = append(errs, validateParamRef(path.Child("paramRef"), params)...)
	return append(errs, validateMatch(path.Child("matchResources"), match)...)
}

func validateParamRef(path *field.Path, r *admissionv1.ParamRef) field.ErrorList {
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	if r.Name != "" {
		errs = append(errs, resource.Invalid(path.Child("name"), r.Name, content.IsPathSegmentName(r.Name))...)
	}
	if r.Selector != nil {
		errs = append(errs, validateSelector(path.Child("selector"), r.Selector)...)
	}
	switch {
	case r.Name != "" && r.Selector != nil:
		errs = append(errs,
			field.Forbidden(path.Child("name"), "name and selector are mutually exclusive"),
			field.Forbidden(path.Child("selector"), "name and selector are mutually exclusive"))
	case r.Name == "" && r.Selector == nil:
		errs = append(errs, field.Required(path, "one of name or selector must be specified"))
	}
	action := path.Child("parameterNotFoundAction")
	if r.ParameterNotFoundAction == nil || *r.ParameterNotFoundAction == "" {
		return append(errs, field.Required(action, ""))
	}
	return append(errs, resource.OneOf(action, *r.ParameterNotFoundAction, admissionv1.DenyAction, admissionv1.AllowAction)...)
}

// policyColumns are the columns of a kind of policy, which counts its rules in
// the column that is named after them.
func policyColumns[T resource.Object](name, description string, count func(T) int, params func(T) *admissionv1.ParamKind) []resource.Column[T] {
	return []resource.Column[T]{
		resource.Name[T](),
		{Name: name, Type: "integer", Description: description, Value: func(obj T) any { return int64(count(obj)) }},
		{Name: "ParamKind", Description: "ParamKind specifies the kind of resources used to parameterize this policy", Value: func(obj T) any {
			if k := params(obj); k != nil {
				return k.APIVersion + "/" + k.Kind
			}
			return "<unset>"
		}},
		resource.Age[T](),
	}
}

func bindingColumns[T resource.Object](policy func(T) string, params func(T) *admissionv1.ParamRef) []resource.Column[T] {
	return []resource.Column[T]{
		resource.Name[T](),
		{Name: "PolicyName", Description: "PolicyName indicates the policy definition which the policy binding binded to",
			Value: func(obj T) any { return policy(obj) }},
		{Name: "ParamRef", Description: "ParamRef indicates the param resource which sets the configuration param",
			Value: func(obj T) any { return paramCell(params(obj)) }},
		resource.Age[T](),
	}
}

// paramCell shows where a binding's parameters come from; without a namespace
// they may be of any, or of none.
func paramCell(r *admissionv1.ParamRef) string {
	switch {
	case r == nil || r.Name == "" && r.Selector == nil:
		return "<unset>"
	case r.Name == "":
		return r.Selector.String()
	case r.Namespace == "":
		return "*/" + r.Name
	}
	return r.Namespace + "/" + r.Name
}
