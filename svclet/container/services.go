package container

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apiService is the service of the API server in the namespace default; every
// container gets its address.
const apiService = "kubernetes"

// serviceVariables returns the variables of services: always those of the API
// server, and those of the pod's namespace unless enableServiceLinks is false.
func serviceVariables(ctx context.Context, objects Objects, pod *corev1.Pod) (map[string]string, error) {
	if objects == nil {
		return nil, nil
	}
	services := map[string]*corev1.Service{}
	if pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks {
		own, err := objects.Services(ctx, pod.Namespace)
		if err != nil {
			return nil, fmt.Errorf("list services for variables: %w", err)
		}
		for _, service := range own {
			if addressed(service) {
				services[service.Name] = service
			}
		}
	}
	if services[apiService] == nil {
		common, err := objects.Services(ctx, metav1.NamespaceDefault)
		if err != nil {
			return nil, fmt.Errorf("list services for variables: %w", err)
		}
		for _, service := range common {
			if service.Name == apiService && addressed(service) {
				services[apiService] = service
			}
		}
	}
	variables := map[string]string{}
	for _, service := range services {
		setServiceVariables(variables, service)
	}
	return variables, nil
}

// addressed reports whether a service has a cluster IP; without one it has no
// variables.
func addressed(service *corev1.Service) bool {
	ip := service.Spec.ClusterIP
	return ip != "" && ip != corev1.ClusterIPNone && len(service.Spec.Ports) > 0
}

// setServiceVariables sets a service's variables in the style of Kubernetes
// (<NAME>_SERVICE_HOST) and of Docker's links (<NAME>_PORT).
func setServiceVariables(variables map[string]string, service *corev1.Service) {
	ip := service.Spec.ClusterIP
	name := variableName(service.Name)
	variables[name+"_SERVICE_HOST"] = ip
	variables[name+"_SERVICE_PORT"] = strconv.Itoa(int(service.Spec.Ports[0].Port))
	for i := range service.Spec.Ports {
		port := &service.Spec.Ports[i]
		number := strconv.Itoa(int(port.Port))
		if port.Name != "" {
			variables[name+"_SERVICE_PORT_"+variableName(port.Name)] = number
		}
		protocol := port.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		scheme := strings.ToLower(string(protocol))
		url := scheme + "://" + net.JoinHostPort(ip, number)
		if i == 0 {
			variables[name+"_PORT"] = url
		}
		prefix := name + "_PORT_" + number + "_" + strings.ToUpper(string(protocol))
		variables[prefix] = url
		variables[prefix+"_PROTO"] = scheme
		variables[prefix+"_PORT"] = number
		variables[prefix+"_ADDR"] = ip
	}
}

func variableName(name string) string {
	return strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}
