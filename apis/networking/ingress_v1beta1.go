package networking

import (
	"strings"

	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// ingressVersions are networking.k8s.io/v1beta1 and, with the same fields,
// extensions/v1beta1. Their backends name a service and its port in two fields, and
// paths without a type are ImplementationSpecific (document 2, section 9).
func ingressVersions() []resource.Version {
	return []resource.Version{
		resource.Convert(ingressFromV1beta1, ingressToV1beta1).ValidatedBy(validateIngressV1beta1).DefaultedBy(func(obj runtime.Object) {
			defaultPathTypes(obj.(*networkingv1beta1.Ingress))
		}),
		resource.Convert(
			func(in *extensionsv1beta1.Ingress, out *networkingv1.Ingress) error {
				var same networkingv1beta1.Ingress
				resource.CopyFields(in, &same)
				return ingressFromV1beta1(&same, out)
			},
			func(in *networkingv1.Ingress, out *extensionsv1beta1.Ingress) error {
				var same networkingv1beta1.Ingress
				if err := ingressToV1beta1(in, &same); err != nil {
					return err
				}
				resource.CopyFields(&same, out)
				return nil
			},
		).ValidatedBy(validateIngressV1beta1).DefaultedBy(func(obj runtime.Object) {
			for _, rule := range obj.(*extensionsv1beta1.Ingress).Spec.Rules {
				if rule.HTTP == nil {
					continue
				}
				for i := range rule.HTTP.Paths {
					resource.Fill(&rule.HTTP.Paths[i].PathType, extensionsv1beta1.PathTypeImplementationSpecific)
				}
			}
		}),
	}
}

func defaultPathTypes(i *networkingv1beta1.Ingress) {
	for _, rule := range i.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		for i := range rule.HTTP.Paths {
			resource.Fill(&rule.HTTP.Paths[i].PathType, networkingv1beta1.PathTypeImplementationSpecific)
		}
	}
}

func ingressFromV1beta1(in *networkingv1beta1.Ingress, out *networkingv1.Ingress) error {
	resource.CopyFields(in, out)
	if b := in.Spec.Backend; b != nil {
		out.Spec.DefaultBackend = &networkingv1.IngressBackend{Resource: b.Resource}
		backendFromV1beta1(b, out.Spec.DefaultBackend)
	}
	for r, rule := range in.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		for p := range rule.HTTP.Paths {
			backendFromV1beta1(&rule.HTTP.Paths[p].Backend, &out.Spec.Rules[r].HTTP.Paths[p].Backend)
		}
	}
	return nil
}

func backendFromV1beta1(in *networkingv1beta1.IngressBackend, out *networkingv1.IngressBackend) {
	if in.ServiceName == "" && in.ServicePort == (intstr.IntOrString{}) {
		return
	}
	out.Service = &networkingv1.IngressServiceBackend{Name: in.ServiceName}
	if in.ServicePort.Type == intstr.String {
		out.Service.Port.Name = in.ServicePort.StrVal
	} else {
		out.Service.Port.Number = in.ServicePort.IntVal
	}
}

func ingressToV1beta1(in *networkingv1.Ingress, out *networkingv1beta1.Ingress) error {
	resource.CopyFields(in, out)
	if b := in.Spec.DefaultBackend; b != nil {
		out.Spec.Backend = &networkingv1beta1.IngressBackend{Resource: b.Resource}
		backendToV1beta1(b, out.Spec.Backend)
	}
	for r, rule := range in.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		for p := range rule.HTTP.Paths {
			backendToV1beta1(&rule.HTTP.Paths[p].Backend, &out.Spec.Rules[r].HTTP.Paths[p].Backend)
		}
	}
	return nil
}

func backendToV1beta1(in *networkingv1.IngressBackend, out *networkingv1beta1.IngressBackend) {
	if in.Service == nil {
		return
	}
	out.ServiceName = in.Service.Name
	out.ServicePort = intstr.FromInt32(in.Service.Port.Number)
	if in.Service.Port.Name != "" {
		out.ServicePort = intstr.FromString(in.Service.Port.Name)
	}
}

// validateIngressV1beta1 validates as v1 does, but for what the older versions have always
// accepted, and names the fields as they do.
func validateIngressV1beta1(obj, _ runtime.Object) field.ErrorList {
	names := strings.NewReplacer("defaultBackend", "backend", "service.name", "serviceName", "service.port.name", "servicePort", "service.port.number", "servicePort")
	errs := validateIngress(obj.(*networkingv1.Ingress), ingressLeniency{secretNames: true, wildcards: true})
	for _, err := range errs {
		err.Field, err.Detail = names.Replace(err.Field), names.Replace(err.Detail)
	}
	return errs
}
