package core

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

var endpoints = resource.Type[*corev1.Endpoints]{
	Name: "endpoints", Singular: "endpoints", ShortNames: []string{"ep"}, Namespaced: true,
	Default:        defaultEndpoints,
	Validate:       validateEndpoints,
	Warn:           warnEndpoints,
	CreateOnUpdate: true,
	Columns: []resource.Column[*corev1.Endpoints]{
		resource.Name[*corev1.Endpoints](),
		{Name: "Endpoints", Description: corev1.Endpoints{}.SwaggerDoc()["subsets"],
			Value: func(e *corev1.Endpoints) any { return endpointList(e.Subsets) }},
		resource.Age[*corev1.Endpoints](),
	},
}

func defaultEndpoints(e *corev1.Endpoints) {
	for _, subset := range e.Subsets {
		for i := range subset.Ports {
			resource.FillEmpty(&subset.Ports[i].Protocol, corev1.ProtocolTCP)
		}
	}
}

func validateEndpoints(e *corev1.Endpoints) field.ErrorList {
	var errs field.ErrorList
	for i, subset := range e.Subsets {
		path := field.NewPath("subsets").Index(i)
		if len(subset.Addresses) == 0 && len(subset.NotReadyAddresses) == 0 {
			errs = append(errs, field.Required(path, "must specify `addresses` or `notReadyAddresses`"))
		}
		for j, address := range subset.Addresses {
			errs = append(errs, validateEndpointAddress(address, path.Child("addresses").Index(j))...)
		}
		for j, address := range subset.NotReadyAddresses {
			errs = append(errs, validateEndpointAddress(address, path.Child("notReadyAddresses").Index(j))...)
		}
		for j, port := range subset.Ports {
			errs = append(errs, validateEndpointPort(port, len(subset.Ports) > 1, path.Child("ports").Index(j))...)
		}
	}
	return errs
}

func validateEndpointAddress(address corev1.EndpointAddress, path *field.Path) field.ErrorList {
	errs := validation.IsValidIPForLegacyField(path.Child("ip"), address.IP, true, nil)
	if len(errs) == 0 {
		errs = validateReachableIP(address.IP, path.Child("ip"))
	}
	if address.Hostname != "" {
		errs = append(errs, resource.Invalid(path.Child("hostname"), address.Hostname, validation.IsDNS1123Label(address.Hostname))...)
	}
	if address.NodeName != nil {
		errs = append(errs, resource.Invalid(path.Child("nodeName"), *address.NodeName, validation.IsDNS1123Subdomain(*address.NodeName))...)
	}
	return errs
}

func validateEndpointPort(port corev1.EndpointPort, requireName bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if port.Name != "" {
		errs = append(errs, resource.Invalid(path.Child("name"), port.Name, validation.IsDNS1123Label(port.Name))...)
	} else if requireName {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	errs = append(errs, resource.Invalid(path.Child("port"), port.Port, validation.IsValidPortNum(int(port.Port)))...)
	errs = append(errs, validateProtocol(port.Protocol, path.Child("protocol"))...)
	if port.AppProtocol != nil {
		errs = append(errs, resource.Invalid(path.Child("appProtocol"), *port.AppProtocol, validation.IsQualifiedName(*port.AppProtocol))...)
	}
	return errs
}

func warnEndpoints(e, _ *corev1.Endpoints) []string {
	var warnings []string
	for i, subset := range e.Subsets {
		path := field.NewPath("subsets").Index(i)
		for j, address := range subset.Addresses {
			warnings = append(warnings, validation.GetWarningsForIP(path.Child("addresses").Index(j).Child("ip"), address.IP)...)
		}
		for j, address := range subset.NotReadyAddresses {
			warnings = append(warnings, validation.GetWarningsForIP(path.Child("notReadyAddresses").Index(j).Child("ip"), address.IP)...)
		}
	}
	return warnings
}

// endpointList returns the Endpoints cell: the first ready endpoints, and the
// number of the others.
func endpointList(subsets []corev1.EndpointSubset) string {
	const shown = 3
	if len(subsets) == 0 {
		return "<none>"
	}
	var first []string
	all := 0
	for _, subset := range subsets {
		if len(subset.Ports) == 0 { // of a headless service without ports
			all += len(subset.Addresses)
			for _, address := range subset.Addresses[:min(len(subset.Addresses), shown-len(first))] {
				first = append(first, address.IP)
			}
		}
		all += len(subset.Ports) * len(subset.Addresses) // which may be hundreds of millions
		for _, port := range subset.Ports {
			for _, address := range subset.Addresses[:min(len(subset.Addresses), shown-len(first))] {
				first = append(first, net.JoinHostPort(address.IP, strconv.Itoa(int(port.Port))))
			}
		}
	}
	if more := all - len(first); more > 0 {
		return fmt.Sprintf("%s + %d more...", strings.Join(first, ","), more)
	}
	return strings.Join(first, ",")
}
