package podspec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

func nodeSelectorIsValid(s *podSpec) field.ErrorList {
	return metav1validation.ValidateLabels(s.NodeSelector, s.path.Child("nodeSelector"))
}

func affinityIsValid(s *podSpec) field.ErrorList {
	if s.Affinity == nil {
		return nil
	}
	const required, preferred = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
	path := s.path.Child("affinity")
	var errs field.ErrorList
	if a := s.Affinity.NodeAffinity; a != nil {
		path := path.Child("nodeAffinity")
		if a.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			errs = append(errs, ValidateNodeSelector(a.RequiredDuringSchedulingIgnoredDuringExecution, path.Child(required))...)
		}
		for i := range a.PreferredDuringSchedulingIgnoredDuringExecution {
			term, path := &a.PreferredDuringSchedulingIgnoredDuringExecution[i], path.Child(preferred).Index(i)
			errs = append(errs, validateWeight(term.Weight, path)...)
			// A preference may have values that are invalid for labels.
			errs = append(errs, validateNodeSelectorTerm(&term.Preference, true, path.Child("preference"))...)
		}
	}
	if a := s.Affinity.PodAffinity; a != nil {
		errs = append(errs, validatePodAffinityTerms(a.RequiredDuringSchedulingIgnoredDuringExecution, path.Child("podAffinity", required))...)
		errs = append(errs, validateWeightedTerms(a.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAffinity", preferred))...)
	}
	if a := s.Affinity.PodAntiAffinity; a != nil {
		errs = append(errs, validatePodAffinityTerms(a.RequiredDuringSchedulingIgnoredDuringExecution, path.Child("podAntiAffinity", required))...)
		errs = append(errs, validateWeightedTerms(a.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAntiAffinity", preferred))...)
	}
	return errs
}

func validateWeight(weight int32, path *field.Path) field.ErrorList {
	if weight <= 0 || weight > 100 {
		return field.ErrorList{field.Invalid(path.Child("weight"), weight, "must be in the range 1-100")}
	}
	return nil
}

// ValidateNodeSelector validates what a pod or a volume requires of a node.
func ValidateNodeSelector(selector *corev1.NodeSelector, path *field.Path) field.ErrorList {
	path = path.Child("nodeSelectorTerms")
	if len(selector.NodeSelectorTerms) == 0 {
		return field.ErrorList{field.Required(path, "must have at least one node selector term")}
	}
	var errs field.ErrorList
	for i := range selector.NodeSelectorTerms {
		errs = append(errs, validateNodeSelectorTerm(&selector.NodeSelectorTerms[i], false, path.Index(i))...)
	}
	return errs
}

func validateNodeSelectorTerm(term *corev1.NodeSelectorTerm, anyValue bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, r := range term.MatchExpressions {
		errs = append(errs, validateNodeRequirement(r, anyValue, path.Child("matchExpressions").Index(i))...)
	}
	for i, r := range term.MatchFields {
		errs = append(errs, validateNodeFieldRequirement(r, path.Child("matchFields").Index(i))...)
	}
	return errs
}

func validateNodeRequirement(r corev1.NodeSelectorRequirement, anyValue bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	values := path.Child("values")
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(values, "must be specified when `operator` is 'In' or 'NotIn'"))
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			errs = append(errs, field.Forbidden(values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(values, "must be specified single value when `operator` is 'Lt' or 'Gt'"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	errs = append(errs, metav1validation.ValidateLabelName(r.Key, path.Child("key"))...)
	if !anyValue {
		for i, value := range r.Values {
			errs = append(errs, resource.Invalid(values.Index(i), value, validation.IsValidLabelValue(value))...)
		}
	}
	return errs
}

func validateNodeFieldRequirement(r corev1.NodeSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(path.Child("values"), "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	if r.Key != metav1.ObjectNameField {
		return append(errs, field.Invalid(path.Child("key"), r.Key, "not a valid field selector key"))
	}
	for i, value := range r.Values {
		errs = append(errs, resource.Invalid(path.Child("values").Index(i), value, validation.IsDNS1123Subdomain(value))...)
	}
	return errs
}

func validateWeightedTerms(terms []corev1.WeightedPodAffinityTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range terms {
		errs = append(errs, validateWeight(terms[i].Weight, path.Index(i))...)
		errs = append(errs, validatePodAffinityTerm(&terms[i].PodAffinityTerm, path.Index(i).Child("podAffinityTerm"))...)
	}
	return errs
}

func validatePodAffinityTerms(terms []corev1.PodAffinityTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range terms {
		errs = append(errs, validatePodAffinityTerm(&terms[i], path.Index(i))...)
	}
	return errs
}

func validatePodAffinityTerm(t *corev1.PodAffinityTerm, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabelSelector(t.LabelSelector, metav1validation.LabelSelectorValidationOptions{}, path.Child("labelSelector"))
	errs = append(errs, metav1validation.ValidateLabelSelector(t.NamespaceSelector, metav1validation.LabelSelectorValidationOptions{}, path.Child("namespaceSelector"))...)
	for _, name := range t.Namespaces {
		errs = append(errs, resource.Invalid(path.Child("namespaces"), name, validation.IsDNS1123Label(name))...)
	}
	errs = append(errs, validateLabelKeys(t.MatchLabelKeys, t.MismatchLabelKeys, t.LabelSelector, path)...)
	if t.TopologyKey == "" {
		errs = append(errs, field.Required(path.Child("topologyKey"), "can not be empty"))
	}
	return append(errs, metav1validation.ValidateLabelName(t.TopologyKey, path.Child("topologyKey"))...)
}

// validateLabelKeys validates matchLabelKeys and mismatchLabelKeys. The server has
// added requirements for them to the selector before: a key that occurs there
// twice was in the client's selector.
func validateLabelKeys(match, mismatch []string, selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, list := range []struct {
		name string
		keys []string
	}{{"matchLabelKeys", match}, {"mismatchLabelKeys", mismatch}} {
		if len(list.keys) > 0 && selector == nil {
			errs = append(errs, field.Forbidden(path.Child(list.name), "must not be specified when labelSelector is not set"))
			continue
		}
		for i, key := range list.keys {
			errs = append(errs, metav1validation.ValidateLabelName(key, path.Child(list.name).Index(i))...)
		}
	}
	if selector != nil {
		seen := sets.KeySet(selector.MatchLabels)
		for _, expression := range selector.MatchExpressions {
			if i := slices.Index(match, expression.Key); i >= 0 && seen.Has(expression.Key) {
				errs = append(errs, field.Invalid(path.Child("matchLabelKeys").Index(i), expression.Key, "exists in both matchLabelKeys and labelSelector"))
			}
			seen.Insert(expression.Key)
		}
	}
	for i, key := range match {
		if slices.Contains(mismatch, key) {
			errs = append(errs, field.Invalid(path.Child("matchLabelKeys").Index(i), key, "exists in both matchLabelKeys and mismatchLabelKeys"))
		}
	}
	return errs
}

func topologySpreadConstraintsAreValid(s *podSpec) field.ErrorList {
	var errs field.ErrorList
	for i := range s.TopologySpreadConstraints {
		c, path := &s.TopologySpreadConstraints[i], s.path.Child("topologySpreadConstraints").Index(i)
		if c.MaxSkew <= 0 {
			errs = append(errs, field.Invalid(path.Child("maxSkew"), c.MaxSkew, "must be greater than zero"))
		}
		if c.TopologyKey == "" {
			errs = append(errs, field.Required(path.Child("topologyKey"), "can not be empty"))
		}
		errs = append(errs, resource.OptionalOneOf(path.Child("whenUnsatisfiable"), &c.WhenUnsatisfiable, corev1.DoNotSchedule, corev1.ScheduleAnyway)...)
		for _, other := range s.TopologySpreadConstraints[i+1:] {
			if other.TopologyKey == c.TopologyKey && other.WhenUnsatisfiable == c.WhenUnsatisfiable {
				errs = append(errs, field.Duplicate(path.Child("{topologyKey, whenUnsatisfiable}"), fmt.Sprintf("{%s, %s}", c.TopologyKey, c.WhenUnsatisfiable)))
				break
			}
		}
		if c.MinDomains != nil {
			if *c.MinDomains <= 0 {
				errs = append(errs, field.Invalid(path.Child("minDomains"), *c.MinDomains, "must be greater than zero"))
			}
			if c.WhenUnsatisfiable != corev1.DoNotSchedule {
				errs = append(errs, field.Invalid(path.Child("minDomains"), *c.MinDomains, fmt.Sprintf("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not %s", c.WhenUnsatisfiable)))
			}
		}
		errs = append(errs, resource.OptionalOneOf(path.Child("nodeAffinityPolicy"), c.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)...)
		errs = append(errs, resource.OptionalOneOf(path.Child("nodeTaintsPolicy"), c.NodeTaintsPolicy, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)...)
		errs = append(errs, validateLabelKeys(c.MatchLabelKeys, nil, c.LabelSelector, path)...)
		errs = append(errs, metav1validation.ValidateLabelSelector(c.LabelSelector, metav1validation.LabelSelectorValidationOptions{}, path.Child("labelSelector"))...)
	}
	return errs
}

func tolerationsAreValid(s *podSpec) field.ErrorList {
	return ValidateTolerations(s.Tolerations, s.path.Child("tolerations"))
}

// ValidateTolerations validates the tolerations of a pod or a RuntimeClass.
func ValidateTolerations(tolerations []corev1.Toleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range tolerations {
		errs = append(errs, validateToleration(&tolerations[i], path.Index(i))...)
	}
	return errs
}

func validateToleration(t *corev1.Toleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Key != "" {
		errs = append(errs, metav1validation.ValidateLabelName(t.Key, path.Child("key"))...)
	} else if t.Operator != corev1.TolerationOpExists {
		errs = append(errs, field.Invalid(path.Child("operator"), t.Operator,
			"operator must be Exists when `key` is empty, which means \"match all values and all keys\""))
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		errs = append(errs, field.Invalid(path.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"))
	}
	switch t.Operator {
	case corev1.TolerationOpEqual, "":
		if msgs := validation.IsValidLabelValue(t.Value); len(msgs) > 0 {
			errs = append(errs, field.Invalid(path.Child("operator"), t.Value, strings.Join(msgs, ";")))
		}
	case corev1.TolerationOpExists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(path.Child("operator"), t.Value, "value must be empty when `operator` is 'Exists'"))
		}
	case corev1.TolerationOpLt, corev1.TolerationOpGt:
		if _, err := strconv.ParseInt(t.Value, 10, 64); err != nil {
			errs = append(errs, field.Invalid(path.Child("value"), t.Value, "must be an integer"))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("operator"), t.Operator, []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
	}
	if t.Effect != "" {
		errs = append(errs, resource.OptionalOneOf(path.Child("effect"), &t.Effect,
			corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
	}
	return errs
}
