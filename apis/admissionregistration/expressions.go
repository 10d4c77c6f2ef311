package admissionregistration

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// conditionCompiler returns the compiler of match conditions, and of validating policies
// without variables, which keeps no state. The first call makes it, since that costs milliseconds.
var conditionCompiler = sync.OnceValue(func() plugincel.Compiler {
	return plugincel.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
})

// compileWebhooks compiles the match conditions of webhooks. Otherwise a typo in
// one of them would fail every request that its webhook, with failure policy Fail,
// is called for.
func compileWebhooks(hooks []webhook) field.ErrorList {
	var errs field.ErrorList
	for i, h := range hooks {
		errs = append(errs, compileMatchConditions(field.NewPath("webhooks").Index(i).Child("matchConditions"), h.conditions, nil)...)
	}
	return errs
}

// compileChangedWebhooks compiles the match conditions of updated webhooks. It
// skips them if no webhook changes its conditions, so that a configuration which
// was stored with an invalid expression can be updated.
func compileChangedWebhooks(hooks, old []webhook) field.ErrorList {
	if slices.EqualFunc(hooks, old, func(a, b webhook) bool { return slices.Equal(a.conditions, b.conditions) }) {
		return nil
	}
	return compileWebhooks(hooks)
}

// compileMatchConditions compiles the match conditions of a webhook or of a policy
// with this kind of parameters.
func compileMatchConditions(path *field.Path, conditions []admissionv1.MatchCondition, params *admissionv1.ParamKind) field.ErrorList {
	if len(conditions) == 0 {
		return nil
	}
	e := expressions{compiler: conditionCompiler(), variables: variablesFor(params)}
	for i, c := range conditions {
		e.compile(path.Index(i).Child("expression"), &matchconditions.MatchCondition{Expression: strings.TrimSpace(c.Expression)})
	}
	return e.errs
}

// variablesFor returns the optional variables of an expression in a policy with
// this kind of parameters.
func variablesFor(params *admissionv1.ParamKind) plugincel.OptionalVariableDeclarations {
	return plugincel.OptionalVariableDeclarations{HasParams: params != nil, HasAuthorizer: true}
}

// expressions compiles the expressions of one object and collects the errors.
type expressions struct {
	compiler  plugincel.Compiler
	variables plugincel.OptionalVariableDeclarations
	errs      field.ErrorList
}

// newPolicyExpressions compiles a policy's variables, each of which can use those
// before it. The policy's other expressions can use all of them.
func newPolicyExpressions(path *field.Path, variables []admissionv1.Variable, params *admissionv1.ParamKind) (*expressions, error) {
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return nil, fmt.Errorf("make the CEL compiler of a policy: %w", err)
	}
	e := &expressions{compiler: compiler, variables: variablesFor(params)}
	for i, v := range variables {
		if strings.TrimSpace(v.Expression) != "" {
			result := compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, e.variables, environment.NewExpressions)
			e.report(path.Index(i).Child("expression"), v.Expression, result.Error)
		}
	}
	return e, nil
}

// compile compiles an expression, unless it is empty: whether it is required is
// not decided here.
func (e *expressions) compile(path *field.Path, expression plugincel.ExpressionAccessor) {
	if strings.TrimSpace(expression.GetExpression()) != "" {
		e.report(path, expression.GetExpression(), e.compiler.CompileCELExpression(expression, e.variables, environment.NewExpressions).Error)
	}
}

// report adds a compiler's error as Kubernetes words it.
func (e *expressions) report(path *field.Path, expression string, err *apiservercel.Error) {
	switch {
	case err == nil:
	case err.Type == apiservercel.ErrorTypeRequired:
		e.errs = append(e.errs, field.Required(path, err.Detail))
	case err.Type == apiservercel.ErrorTypeInvalid:
		e.errs = append(e.errs, field.Invalid(path, expression, err.Detail))
	default:
		e.errs = append(e.errs, field.InternalError(path, err))
	}
}

// policyContext is what the expressions of a policy of either kind depend on.
type policyContext struct {
	params     *admissionv1.ParamKind
	conditions []admissionv1.MatchCondition
	variables  []admissionv1.Variable
}

// compile returns the errors of the match conditions, unless they compiled as they are
// in the context of the stored policy (nil for a new one). same reports whether further
// expressions that have not changed compile as they did there.
func (c policyContext) compile(path *field.Path, was *policyContext) (errs field.ErrorList, same bool) {
	same = was != nil && (c.params == nil) == (was.params == nil)
	if !same || !slices.Equal(c.conditions, was.conditions) {
		errs = compileMatchConditions(path.Child("matchConditions"), c.conditions, c.params)
	}
	return errs, same && slices.Equal(c.variables, was.variables)
}

// compileValidatingPolicy compiles the expressions of a policy. On an update it
// skips the match conditions, and the other expressions, if they and the
// parameters that they can use are those of the old policy.
func compileValidatingPolicy(p, old *admissionv1.ValidatingAdmissionPolicy) field.ErrorList {
	spec, path := &p.Spec, field.NewPath("spec")
	var was admissionv1.ValidatingAdmissionPolicySpec
	var wasContext *policyContext
	if old != nil {
		was = old.Spec
		wasContext = &policyContext{was.ParamKind, was.MatchConditions, was.Variables}
	}
	errs, same := policyContext{spec.ParamKind, spec.MatchConditions, spec.Variables}.compile(path, wasContext)
	if same && slices.Equal(spec.AuditAnnotations, was.AuditAnnotations) &&
		slices.EqualFunc(spec.Validations, was.Validations, sameExpressions) {
		return errs
	}
	e := &expressions{compiler: conditionCompiler(), variables: variablesFor(spec.ParamKind)}
	if len(spec.Variables) > 0 { // otherwise "variables" is not declared
		var err error
		if e, err = newPolicyExpressions(path.Child("variables"), spec.Variables, spec.ParamKind); err != nil {
			return append(errs, field.InternalError(path, err))
		}
	}
	for i, v := range spec.Validations {
		at := path.Child("validations").Index(i)
		e.compile(at.Child("expression"), &validating.ValidationCondition{Expression: v.Expression})
		// Messages are made without the authorizer.
		e.variables.HasAuthorizer = false
		e.compile(at.Child("messageExpression"), &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
		e.variables.HasAuthorizer = true
	}
	for i, a := range spec.AuditAnnotations {
		e.compile(path.Child("auditAnnotations").Index(i).Child("valueExpression"),
			&validating.AuditAnnotationCondition{ValueExpression: strings.TrimSpace(a.ValueExpression)})
	}
	return append(errs, e.errs...)
}

func sameExpressions(a, b admissionv1.Validation) bool {
	return a.Expression == b.Expression && a.MessageExpression == b.MessageExpression
}

// compileMutatingPolicy compiles the expressions of a policy, and skips unchanged
// ones as compileValidatingPolicy does.
func compileMutatingPolicy(p, old *admissionv1.MutatingAdmissionPolicy) field.ErrorList {
	spec, path := &p.Spec, field.NewPath("spec")
	var was admissionv1.MutatingAdmissionPolicySpec
	var wasContext *policyContext
	if old != nil {
		was = old.Spec
		wasContext = &policyContext{was.ParamKind, was.MatchConditions, was.Variables}
	}
	errs, same := policyContext{spec.ParamKind, spec.MatchConditions, spec.Variables}.compile(path, wasContext)
	if same && equality.Semantic.DeepEqual(spec.Mutations, was.Mutations) {
		return errs
	}
	e, err := newPolicyExpressions(path.Child("variables"), spec.Variables, spec.ParamKind)
	if err != nil {
		return append(errs, field.InternalError(path, err))
	}
	e.variables.HasPatchTypes = true
	for i, m := range spec.Mutations {
		at := path.Child("mutations").Index(i)
		switch {
		case m.PatchType == admissionv1.PatchTypeJSONPatch && m.JSONPatch != nil:
			e.compile(at.Child("jsonPatch", "expression"), &patch.JSONPatchCondition{Expression: m.JSONPatch.Expression})
		case m.PatchType == admissionv1.PatchTypeApplyConfiguration && m.ApplyConfiguration != nil:
			e.compile(at.Child("applyConfiguration", "expression"), &patch.ApplyConfigurationCondition{Expression: m.ApplyConfiguration.Expression})
		}
	}
	return append(errs, e.errs...)
}
