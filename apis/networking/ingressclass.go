package networking

import (
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource"
)

// maxController is the greatest length of spec.controller.
const maxController = 250

var ingressClasses = resource.Type[*networkingv1.IngressClass]{
	Name:     "ingressclasses",
	Versions: []resource.Version{resource.Alike[networkingv1.IngressClass, networkingv1beta1.IngressClass]()},
	Default: func(c *networkingv1.IngressClass) {
		if c.Spec.Parameters != nil {
			resource.Fill(&c.Spec.Parameters.Scope, networkingv1.IngressClassParametersReferenceScopeCluster)
		}
	},
	Validate: validateIngressClass,
	ValidateUpdate: func(c, old *networkingv1.IngressClass) field.ErrorList {
		return apivalidation.ValidateImmutableField(c.Spec.Controller, old.Spec.Controller, field.NewPath("spec", "controller"))
	},
	Generation: true,
	Columns: []resource.Column[*networkingv1.IngressClass]{
		{Name: "Name", Format: "name", Description: resource.Name[*networkingv1.IngressClass]().Description, Value: func(c *networkingv1.IngressClass) any {
			if c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
				return c.Name + " (default)"
			}
			return c.Name
		}},
		{Name: "Controller", Description: "Controller that is responsible for handling this class",
			Value: func(c *networkingv1.IngressClass) any { return c.Spec.Controller }},
		{Name: "Parameters", Description: "A reference to a resource with additional parameters",
			Value: func(c *networkingv1.IngressClass) any { return parametersCell(c.Spec.Parameters) }},
		resource.Age[*networkingv1.IngressClass](),
	},
}

func validateIngressClass(c *networkingv1.IngressClass) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec")
	if len(c.Spec.Controller) > maxController {
		errs = append(errs, field.TooLong(path.Child("controller"), "", maxController))
	}
	errs = append(errs, validation.IsDomainPrefixedPath(path.Child("controller"), c.Spec.Controller)...)
	if p := c.Spec.Parameters; p != nil {
		errs = append(errs, validateReference(path.Child("parameters"), p.APIGroup, p.Kind, p.Name)...)
		// A release that has it only in alpha sets no scope.
		errs = append(errs, validateScope(path.Child("parameters"), ptr.Deref(p.Scope, networkingv1.IngressClassParametersReferenceScopeCluster), p.Namespace)...)
	}
	return errs
}

// validateScope requires a namespace for parameters that live in one, and
// only for those.
func validateScope(path *field.Path, scope string, namespace *string) field.ErrorList {
	at := path.Child("namespace")
	switch scope {
	case networkingv1.IngressClassParametersReferenceScopeNamespace:
		if namespace == nil {
			return field.ErrorList{field.Required(at, "`parameters.scope` is set to 'Namespace'")}
		}
		return resource.Invalid(at, *namespace, apivalidation.ValidateNamespaceName(*namespace, false))
	case networkingv1.IngressClassParametersReferenceScopeCluster:
		if namespace != nil {
			return field.ErrorList{field.Forbidden(at, "`parameters.scope` is set to 'Cluster'")}
		}
		return nil
	}
	return resource.OneOf(path.Child("scope"), scope,
		networkingv1.IngressClassParametersReferenceScopeCluster, networkingv1.IngressClassParametersReferenceScopeNamespace)
}

// validateReference validates a reference to an object of any kind.
func validateReference(path *field.Path, group *string, kind, name string) field.ErrorList {
	var errs field.ErrorList
	if group != nil {
		errs = append(errs, resource.Invalid(path.Child("apiGroup"), *group, validation.IsDNS1123Subdomain(*group))...)
	}
	errs = append(errs, requireSegment(path.Child("kind"), kind)...)
	return append(errs, requireSegment(path.Child("name"), name)...)
}

// requireSegment requires a name that fits into a URL.
func requireSegment(path *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return resource.Invalid(path, name, content.IsPathSegmentName(name))
}

func parametersCell(p *networkingv1.IngressClassParametersReference) string {
	if p == nil {
		return "<none>"
	}
	kind := p.Kind
	if p.APIGroup != nil {
		kind += "." + *p.APIGroup
	}
	return kind + "/" + p.Name
}
