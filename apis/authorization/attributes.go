package authorization

import (
	"errors"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// attributes returns the attributes to authorize for a review. Exactly one of
// resource and path is set.
func attributes(who user.Info, resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) authorizer.AttributesRecord {
	if resource == nil {
		return authorizer.AttributesRecord{User: who, Verb: path.Verb, Path: path.Path}
	}
	ask := authorizer.AttributesRecord{
		User:            who,
		Verb:            resource.Verb,
		Namespace:       resource.Namespace,
		APIGroup:        resource.Group,
		APIVersion:      resource.Version,
		Resource:        resource.Resource,
		Subresource:     resource.Subresource,
		Name:            resource.Name,
		ResourceRequest: true,
	}
	if ask.APIVersion == "" {
		ask.APIVersion = "*"
	}
	if s := resource.LabelSelector; s != nil {
		ask.LabelSelectorRequirements, ask.LabelSelectorParsingErr = labelRequirements(s)
	}
	if s := resource.FieldSelector; s != nil {
		ask.FieldSelectorRequirements, ask.FieldSelectorParsingErr = fieldRequirements(s)
	}
	return ask
}

// labelRequirements parses a selector. Invalid requirements are omitted and
// returned as an error: the access that is checked becomes broader, never narrower.
func labelRequirements(s *authorizationv1.LabelSelectorAttributes) (labels.Requirements, error) {
	if s.RawSelector != "" {
		selector, err := labels.Parse(s.RawSelector)
		if err != nil {
			return nil, err
		}
		requirements, _ := selector.Requirements()
		return requirements, nil
	}
	var requirements labels.Requirements
	var errs []error
	for _, r := range s.Requirements {
		op, ok := labelOperator(r.Operator)
		if !ok {
			errs = append(errs, fmt.Errorf("%q is not a valid label selector operator", r.Operator))
			continue
		}
		requirement, err := labels.NewRequirement(r.Key, op, r.Values)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		requirements = append(requirements, *requirement)
	}
	return requirements, errors.Join(errs...)
}

func labelOperator(op metav1.LabelSelectorOperator) (selection.Operator, bool) {
	switch op {
	case metav1.LabelSelectorOpIn:
		return selection.In, true
	case metav1.LabelSelectorOpNotIn:
		return selection.NotIn, true
	case metav1.LabelSelectorOpExists:
		return selection.Exists, true
	case metav1.LabelSelectorOpDoesNotExist:
		return selection.DoesNotExist, true
	default:
		return "", false
	}
}

// fieldRequirements parses a selector as labelRequirements does. Field selectors
// can compare with one value only.
func fieldRequirements(s *authorizationv1.FieldSelectorAttributes) (fields.Requirements, error) {
	if s.RawSelector != "" {
		selector, err := fields.ParseSelector(s.RawSelector)
		if err != nil {
			return nil, err
		}
		return selector.Requirements(), nil
	}
	var requirements fields.Requirements
	var errs []error
	for _, r := range s.Requirements {
		var op selection.Operator
		switch r.Operator {
		case metav1.FieldSelectorOpIn:
			op = selection.Equals
		case metav1.FieldSelectorOpNotIn:
			op = selection.NotEquals
		default:
			errs = append(errs, fmt.Errorf("field selectors do not support the operator %q", r.Operator))
			continue
		}
		if len(r.Values) != 1 {
			errs = append(errs, fmt.Errorf("field selector operator %q must have exactly one value", r.Operator))
			continue
		}
		requirements = append(requirements, fields.Requirement{Field: r.Key, Operator: op, Value: r.Values[0]})
	}
	return requirements, errors.Join(errs...)
}

// evaluationError describes the error of an evaluation and the selectors that
// were ignored in it.
func evaluationError(err error, ask authorizer.AttributesRecord) string {
	var messages []string
	if err != nil {
		messages = append(messages, err.Error())
	}
	ignored := func(selector string, kept int) {
		how := "ignored"
		if kept > 0 {
			how = "partially ignored"
		}
		messages = append(messages, fmt.Sprintf("spec.resourceAttributes.%s %s due to parse error", selector, how))
	}
	if ask.FieldSelectorParsingErr != nil {
		ignored("fieldSelector", len(ask.FieldSelectorRequirements))
	}
	if ask.LabelSelectorParsingErr != nil {
		ignored("labelSelector", len(ask.LabelSelectorRequirements))
	}
	return strings.Join(messages, "; ")
}
