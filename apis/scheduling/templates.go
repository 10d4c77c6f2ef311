package scheduling

import (
	"strings"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// The rules here are those that k8s.io/api declares beside the types, in comments of the
// form +k8s:maxItems=8, from which Kubernetes generates its validation.

// validateTemplates validates the templates of groups of pods.
func validateTemplates(path *field.Path, templates []schedulingv1beta1.PodGroupTemplate) field.ErrorList {
	return named(path, templates, schedulingv1beta1.WorkloadMaxPodGroupTemplates, nameOfTemplate, validateTemplate)
}

func nameOfTemplate(t *schedulingv1beta1.PodGroupTemplate) string { return t.Name }

// validateTemplate validates the fields of a template but its name, which a group does not
// have.
func validateTemplate(path *field.Path, t *schedulingv1beta1.PodGroupTemplate) field.ErrorList {
	policy := path.Child("schedulingPolicy")
	errs := oneOf(policy, member{"basic", t.SchedulingPolicy.Basic != nil}, member{"gang", t.SchedulingPolicy.Gang != nil})
	if gang := t.SchedulingPolicy.Gang; gang != nil {
		errs = append(errs, positive(policy.Child("gang", "minCount"), gang.MinCount)...)
	}
	errs = append(errs, named(path.Child("resourceClaims"), t.ResourceClaims, schedulingv1beta1.MaxPodGroupResourceClaims, nameOfClaim, validateClaim)...)
	if mode := t.DisruptionMode; mode != nil {
		errs = append(errs, oneOf(path.Child("disruptionMode"), member{"single", mode.Single != nil}, member{"all", mode.All != nil})...)
	}
	return append(errs, validateCommon(path, commonOf(t))...)
}

func nameOfClaim(c *schedulingv1beta1.PodGroupResourceClaim) string { return c.Name }

func validateClaim(path *field.Path, c *schedulingv1beta1.PodGroupResourceClaim) field.ErrorList {
	errs := oneOf(path, member{"resourceClaimName", c.ResourceClaimName != nil}, member{"resourceClaimTemplateName", c.ResourceClaimTemplateName != nil})
	errs = append(errs, optional(path.Child("resourceClaimName"), c.ResourceClaimName)...)
	return append(errs, optional(path.Child("resourceClaimTemplateName"), c.ResourceClaimTemplateName)...)
}

// validateComposites validates the templates of groups of groups.
func validateComposites(path *field.Path, templates []schedulingv1beta1.CompositePodGroupTemplate) field.ErrorList {
	return named(path, templates, schedulingv1beta1.WorkloadMaxPodGroupTemplates, nameOfComposite, validateComposite)
}

func nameOfComposite(t *schedulingv1beta1.CompositePodGroupTemplate) string { return t.Name }

// validateComposite is validateTemplate for the template of a group of groups.
func validateComposite(path *field.Path, t *schedulingv1beta1.CompositePodGroupTemplate) field.ErrorList {
	policy := path.Child("schedulingPolicy")
	errs := oneOf(policy, member{"basic", t.SchedulingPolicy.Basic != nil}, member{"gang", t.SchedulingPolicy.Gang != nil})
	if gang := t.SchedulingPolicy.Gang; gang != nil {
		errs = append(errs, positive(policy.Child("gang", "minGroupCount"), gang.MinGroupCount)...)
	}
	if mode := t.DisruptionMode; mode != nil {
		errs = append(errs, oneOf(path.Child("disruptionMode"), member{"single", mode.Single != nil}, member{"all", mode.All != nil})...)
	}
	errs = append(errs, validateCommon(path, commonOfComposite(t))...)
	errs = append(errs, validateTemplates(path.Child("podGroupTemplates"), t.PodGroupTemplates)...)
	return append(errs, validateComposites(path.Child("compositePodGroupTemplates"), t.CompositePodGroupTemplates)...)
}

// common are the fields that templates of both kinds have. Those of the type any have
// different types, and are only compared.
type common struct {
	constraints, claims, mode any
	topology                  []schedulingv1beta1.TopologyConstraint
	class                     string
	priority                  *int32
	preemptionPolicy          *schedulingv1beta1.PreemptionPolicy
}

func commonOf(t *schedulingv1beta1.PodGroupTemplate) common {
	c := common{constraints: t.SchedulingConstraints, claims: t.ResourceClaims, mode: t.DisruptionMode, class: t.PriorityClassName, priority: t.Priority, preemptionPolicy: t.PreemptionPolicy}
	if t.SchedulingConstraints != nil {
		c.topology = t.SchedulingConstraints.Topology
	}
	return c
}

func commonOfComposite(t *schedulingv1beta1.CompositePodGroupTemplate) common {
	c := common{constraints: t.SchedulingConstraints, mode: t.DisruptionMode, class: t.PriorityClassName, priority: t.Priority, preemptionPolicy: t.PreemptionPolicy}
	if t.SchedulingConstraints != nil {
		c.topology = t.SchedulingConstraints.Topology
	}
	return c
}

func validateCommon(path *field.Path, c common) field.ErrorList {
	topology := path.Child("schedulingConstraints", "topology")
	var errs field.ErrorList
	if len(c.topology) > 1 {
		errs = append(errs, field.TooMany(topology, len(c.topology), 1))
	}
	for i := range c.topology {
		errs = append(errs, required(topology.Index(i).Child("key"), c.topology[i].Key, content.IsLabelKey)...)
	}
	if c.class != "" {
		errs = append(errs, resource.Invalid(path.Child("priorityClassName"), c.class, content.IsDNS1123Subdomain(c.class))...)
	}
	if c.priority != nil && *c.priority > highestUserPriority {
		errs = append(errs, field.Invalid(path.Child("priority"), *c.priority, content.MaxError(highestUserPriority)))
	}
	return append(errs, resource.OptionalOneOf(path.Child("preemptionPolicy"), c.preemptionPolicy, schedulingv1beta1.PreemptNever, schedulingv1beta1.PreemptLowerPriority)...)
}

// validateTemplatesUpdate allows the minimal counts of templates to change.
func validateTemplatesUpdate(path *field.Path, templates, old []schedulingv1beta1.PodGroupTemplate) field.ErrorList {
	return same(path, templates, old, nameOfTemplate, validateTemplateUpdate)
}

func validateTemplateUpdate(path *field.Path, t, old *schedulingv1beta1.PodGroupTemplate) field.ErrorList {
	policy, was := &t.SchedulingPolicy, &old.SchedulingPolicy
	errs := validatePolicyUpdate(path.Child("schedulingPolicy"), policy.Basic, was.Basic, policy.Gang != nil, was.Gang != nil)
	return append(errs, validateCommonUpdate(path, commonOf(t), commonOf(old))...)
}

// validateCompositesUpdate allows the minimal counts of templates to change.
func validateCompositesUpdate(path *field.Path, templates, old []schedulingv1beta1.CompositePodGroupTemplate) field.ErrorList {
	return same(path, templates, old, nameOfComposite, func(at *field.Path, t, old *schedulingv1beta1.CompositePodGroupTemplate) field.ErrorList {
		policy, was := &t.SchedulingPolicy, &old.SchedulingPolicy
		errs := validatePolicyUpdate(at.Child("schedulingPolicy"), policy.Basic, was.Basic, policy.Gang != nil, was.Gang != nil)
		errs = append(errs, validateCommonUpdate(at, commonOfComposite(t), commonOfComposite(old))...)
		errs = append(errs, validateTemplatesUpdate(at.Child("podGroupTemplates"), t.PodGroupTemplates, old.PodGroupTemplates)...)
		return append(errs, validateCompositesUpdate(at.Child("compositePodGroupTemplates"), t.CompositePodGroupTemplates, old.CompositePodGroupTemplates)...)
	})
}

func validatePolicyUpdate(path *field.Path, basic, oldBasic any, gang, wasGang bool) field.ErrorList {
	errs := apivalidation.ValidateImmutableField(basic, oldBasic, path.Child("basic"))
	switch {
	case gang && !wasGang:
		errs = append(errs, field.Invalid(path.Child("gang"), field.OmitValueType{}, "field cannot be set once created"))
	case !gang && wasGang:
		errs = append(errs, field.Invalid(path.Child("gang"), field.OmitValueType{}, "field cannot be cleared once set"))
	}
	return errs
}

func validateCommonUpdate(path *field.Path, c, old common) field.ErrorList {
	var errs field.ErrorList
	for _, f := range []struct {
		name    string
		is, was any
	}{
		{"schedulingConstraints", c.constraints, old.constraints},
		{"resourceClaims", c.claims, old.claims},
		{"disruptionMode", c.mode, old.mode},
		{"priorityClassName", c.class, old.class},
		{"priority", c.priority, old.priority},
		{"preemptionPolicy", c.preemptionPolicy, old.preemptionPolicy},
	} {
		errs = append(errs, apivalidation.ValidateImmutableField(f.is, f.was, path.Child(f.name))...)
	}
	return errs
}

// member is a field of which a struct has exactly one.
type member struct {
	name  string
	isSet bool
}

// oneOf requires that exactly one of the members of a union is set.
func oneOf(path *field.Path, members ...member) field.ErrorList {
	var all, set []string
	for _, m := range members {
		all = append(all, "`"+m.name+"`")
		if m.isSet {
			set = append(set, m.name)
		}
	}
	switch len(set) {
	case 0:
		return field.ErrorList{field.Invalid(path, "", "must specify one of: "+strings.Join(all, ", "))}
	case 1:
		return nil
	}
	return field.ErrorList{field.Invalid(path, "{"+strings.Join(set, ", ")+"}", "must specify exactly one of: "+strings.Join(all, ", "))}
}

// named validates the elements of a list, whose names are labels and differ.
func named[T any](path *field.Path, list []T, limit int, name func(*T) string, validate func(*field.Path, *T) field.ErrorList) field.ErrorList {
	if len(list) > limit {
		return field.ErrorList{field.TooMany(path, len(list), limit)}
	}
	errs := unique(path, list, name)
	for i := range list {
		errs = append(errs, required(path.Index(i).Child("name"), name(&list[i]), content.IsDNS1123Label)...)
		errs = append(errs, validate(path.Index(i), &list[i])...)
	}
	return errs
}

// unique requires that the names of the elements of a list differ.
func unique[T any](path *field.Path, list []T, name func(*T) string) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i := range list {
		errs = append(errs, resource.Unique(path.Index(i), name(&list[i]), seen)...)
	}
	return errs
}

// same requires that a list has the elements that it had, by their names, and validates what
// has changed in them.
func same[T any](path *field.Path, list, old []T, name func(*T) string, validate func(path *field.Path, t, old *T) field.ErrorList) field.ErrorList {
	was := map[string]*T{}
	for i := range old {
		was[name(&old[i])] = &old[i]
	}
	var errs field.ErrorList
	for i := range list {
		if before, ok := was[name(&list[i])]; ok {
			errs = append(errs, validate(path.Index(i), &list[i], before)...)
			delete(was, name(&list[i]))
		} else {
			errs = append(errs, field.Forbidden(path.Index(i), "item may not be added"))
		}
	}
	for range was {
		errs = append(errs, field.Forbidden(path, "item may not be removed"))
	}
	return errs
}

// required requires a value that is not empty and follows a rule.
func required(path *field.Path, value string, rule func(string) []string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return resource.Invalid(path, value, rule(value))
}

// optional requires that a name, if it is set, is a DNS subdomain.
func optional(path *field.Path, name *string) field.ErrorList {
	if name == nil {
		return nil
	}
	return resource.Invalid(path, *name, content.IsDNS1123Subdomain(*name))
}

// positive requires a number that is greater than zero, which is missing.
func positive(path *field.Path, value int32) field.ErrorList {
	switch {
	case value == 0:
		return field.ErrorList{field.Required(path, "")}
	case value < 0:
		return field.ErrorList{field.Invalid(path, value, content.MinError(1))}
	}
	return nil
}
