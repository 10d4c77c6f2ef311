package core

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"svc.dev/svc/apis/resource"
)

var services = resource.Type[*corev1.Service]{
	Name: "services", ShortNames: []string{"svc"}, Categories: []string{"all"}, Namespaced: true, ReturnDeleted: true,
	NameRule:       apivalidation.NameIsDNSLabel,
	Default:        defaultService,
	PrepareCreate:  prepareService,
	PrepareUpdate:  prepareServiceUpdate,
	Validate:       validateService,
	ValidateUpdate: validateServiceUpdate,
	Warn:           warnService,
	Status:         true,
	ValidateStatus: validateServiceStatus,
	CreateOnUpdate: true,
	BeginCreate:    beginServiceCreate,
	BeginUpdate:    beginServiceUpdate,
	AfterDelete:    releaseService,
	Reservations:   serviceReservations,
	Connects:       []resource.Connect{serviceProxy},
	Fields: map[string]func(*corev1.Service) string{
		"spec.clusterIP": func(s *corev1.Service) string { return s.Spec.ClusterIP },
		"spec.type":      func(s *corev1.Service) string { return string(s.Spec.Type) },
	},
	Columns: serviceColumns,
}

func defaultService(s *corev1.Service) {
	spec := &s.Spec
	defaultSessionAffinity(spec)
	if spec.Type == "" {
		spec.Type = corev1.ServiceTypeClusterIP
	}
	for i := range spec.Ports {
		port := &spec.Ports[i]
		if port.Protocol == "" {
			port.Protocol = corev1.ProtocolTCP
		}
		if port.TargetPort == intstr.FromInt32(0) || port.TargetPort == intstr.FromString("") {
			port.TargetPort = intstr.FromInt32(port.Port)
		}
	}
	if externallyAccessible(s) && spec.ExternalTrafficPolicy == "" {
		spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	}
	if spec.InternalTrafficPolicy == nil && spec.Type != corev1.ServiceTypeExternalName {
		spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyCluster)
	}
	if spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	if spec.AllocateLoadBalancerNodePorts == nil {
		spec.AllocateLoadBalancerNodePorts = new(true)
	}
	for i := range s.Status.LoadBalancer.Ingress {
		if ingress := &s.Status.LoadBalancer.Ingress[i]; ingress.IP != "" && ingress.IPMode == nil {
			ingress.IPMode = new(corev1.LoadBalancerIPModeVIP)
		}
	}
}

func defaultSessionAffinity(spec *corev1.ServiceSpec) {
	switch spec.SessionAffinity {
	case "":
		spec.SessionAffinity = corev1.ServiceAffinityNone
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		if c := spec.SessionAffinityConfig; c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(corev1.DefaultClientIPServiceAffinitySeconds)},
			}
		}
	}
}

// prepareService sets clusterIPs for clients that set only clusterIP.
func prepareService(_ context.Context, _ *resource.Env, s *corev1.Service) {
	dropInternalTrafficPolicy(s)
	if s.Spec.ClusterIP != "" && len(s.Spec.ClusterIPs) == 0 {
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	}
}

// prepareServiceUpdate keeps values that the server has allocated and the client
// leaves out, and clears fields of another service type.
func prepareServiceUpdate(_ context.Context, _ *resource.Env, s, old *corev1.Service) {
	keepAllocated(s, old)
	alignClusterIPs(s, old)
	dropForeignFields(s, old)
	dropInternalTrafficPolicy(s)
}

func dropInternalTrafficPolicy(s *corev1.Service) {
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		s.Spec.InternalTrafficPolicy = nil
	}
}

// keepAllocated copies the values that the server has allocated to fields that the
// client leaves out, so that the client can send the service as it created it.
func keepAllocated(s, old *corev1.Service) {
	if needsClusterIP(s) && needsClusterIP(old) {
		if s.Spec.ClusterIP == "" {
			s.Spec.ClusterIP = old.Spec.ClusterIP
		}
		if len(s.Spec.ClusterIPs) == 0 {
			s.Spec.ClusterIPs = slices.Clone(old.Spec.ClusterIPs)
		}
	}
	if needsNodePorts(s) && needsNodePorts(old) {
		byName := map[string]int32{}
		for _, port := range old.Spec.Ports {
			byName[port.Name] = port.NodePort
		}
		taken := nodePortsOf(s)
		for i := range s.Spec.Ports {
			port := &s.Spec.Ports[i]
			if port.NodePort == 0 && !slices.Contains(taken, byName[port.Name]) {
				port.NodePort = byName[port.Name]
			}
		}
	}
	if needsHealthCheckPort(s) && needsHealthCheckPort(old) && s.Spec.HealthCheckNodePort == 0 {
		s.Spec.HealthCheckNodePort = old.Spec.HealthCheckNodePort
	}
}

// alignClusterIPs changes clusterIPs with clusterIP if the client has changed only
// clusterIP.
func alignClusterIPs(s, old *corev1.Service) {
	if s.Spec.ClusterIP == old.Spec.ClusterIP || !slices.Equal(s.Spec.ClusterIPs, old.Spec.ClusterIPs) {
		return
	}
	s.Spec.ClusterIPs = nil
	if s.Spec.ClusterIP != "" {
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	}
}

// dropForeignFields clears the fields that the service's new type does not have,
// unless the client has changed them, too: then validation rejects them.
func dropForeignFields(s, old *corev1.Service) {
	spec, was := &s.Spec, &old.Spec
	if needsClusterIP(old) && !needsClusterIP(s) {
		if spec.ClusterIP == was.ClusterIP && slices.Equal(spec.ClusterIPs, was.ClusterIPs) {
			spec.ClusterIP, spec.ClusterIPs = "", nil
		}
		if slices.Equal(spec.IPFamilies, was.IPFamilies) {
			spec.IPFamilies = nil
		}
		if equal(spec.IPFamilyPolicy, was.IPFamilyPolicy) {
			spec.IPFamilyPolicy = nil
		}
	}
	if hasNodePorts(old) && !hasNodePorts(s) && !addsNodePorts(s, old) {
		for i := range spec.Ports {
			spec.Ports[i].NodePort = 0
		}
	}
	if needsHealthCheckPort(old) && !needsHealthCheckPort(s) && spec.HealthCheckNodePort == was.HealthCheckNodePort {
		spec.HealthCheckNodePort = 0
	}
	if externallyAccessible(old) && !externallyAccessible(s) && spec.ExternalTrafficPolicy == was.ExternalTrafficPolicy {
		spec.ExternalTrafficPolicy = ""
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		return
	}
	s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	if was.Type == corev1.ServiceTypeLoadBalancer {
		if equal(spec.AllocateLoadBalancerNodePorts, was.AllocateLoadBalancerNodePorts) {
			spec.AllocateLoadBalancerNodePorts = nil
		}
		if equal(spec.LoadBalancerClass, was.LoadBalancerClass) {
			spec.LoadBalancerClass = nil
		}
	}
}

// equal reports whether two pointers are nil or point to equal values.
func equal[T comparable](a, b *T) bool {
	return a == b || (a != nil && b != nil && *a == *b)
}

func needsClusterIP(s *corev1.Service) bool { return s.Spec.Type != corev1.ServiceTypeExternalName }

func headless(s *corev1.Service) bool {
	return len(s.Spec.ClusterIPs) == 1 && s.Spec.ClusterIPs[0] == corev1.ClusterIPNone
}

// hasNodePorts reports whether the service's type is one with node ports.
func hasNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer
}

// needsNodePorts reports whether every port of the service gets a node port.
func needsNodePorts(s *corev1.Service) bool {
	return hasNodePorts(s) && (s.Spec.Type != corev1.ServiceTypeLoadBalancer ||
		s.Spec.AllocateLoadBalancerNodePorts == nil || *s.Spec.AllocateLoadBalancerNodePorts)
}

func needsHealthCheckPort(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

func externallyAccessible(s *corev1.Service) bool {
	return hasNodePorts(s) || (s.Spec.Type == corev1.ServiceTypeClusterIP && len(s.Spec.ExternalIPs) > 0)
}

// nodePortsOf returns the node ports of the service's ports.
func nodePortsOf(s *corev1.Service) []int32 {
	var ports []int32
	for _, port := range s.Spec.Ports {
		if port.NodePort != 0 {
			ports = append(ports, port.NodePort)
		}
	}
	return ports
}

func addsNodePorts(s, old *corev1.Service) bool {
	had := nodePortsOf(old)
	return slices.ContainsFunc(nodePortsOf(s), func(port int32) bool { return !slices.Contains(had, port) })
}

var serviceColumns = func() []resource.Column[*corev1.Service] {
	doc := corev1.ServiceSpec{}.SwaggerDoc()
	return []resource.Column[*corev1.Service]{
		resource.Name[*corev1.Service](),
		{Name: "Type", Description: doc["type"], Value: func(s *corev1.Service) any { return string(s.Spec.Type) }},
		{Name: "Cluster-IP", Description: doc["clusterIP"], Value: func(s *corev1.Service) any {
			if len(s.Spec.ClusterIPs) == 0 {
				return "<none>"
			}
			return s.Spec.ClusterIPs[0]
		}},
		{Name: "External-IP", Description: doc["externalIPs"], Value: func(s *corev1.Service) any { return externalAddresses(s) }},
		{Name: "Port(s)", Description: doc["ports"], Value: func(s *corev1.Service) any { return portList(s.Spec.Ports) }},
		resource.Age[*corev1.Service](),
		{Name: "Selector", Priority: 1, Description: doc["selector"],
			Value: func(s *corev1.Service) any { return labels.FormatLabels(s.Spec.Selector) }},
	}
}()

// externalAddresses returns the External-IP cell: the addresses of the service
// outside of the cluster.
func externalAddresses(s *corev1.Service) string {
	switch s.Spec.Type {
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	case corev1.ServiceTypeLoadBalancer:
		addresses := append(balancerAddresses(s.Status.LoadBalancer.Ingress), s.Spec.ExternalIPs...)
		if len(addresses) == 0 {
			return "<pending>"
		}
		return strings.Join(addresses, ",")
	}
	if len(s.Spec.ExternalIPs) == 0 {
		return "<none>"
	}
	return strings.Join(s.Spec.ExternalIPs, ",")
}

// balancerAddresses returns the load balancer's addresses, sorted, each once.
func balancerAddresses(ingress []corev1.LoadBalancerIngress) []string {
	var addresses []string
	for _, point := range ingress {
		if point.IP != "" {
			addresses = append(addresses, point.IP)
		} else if point.Hostname != "" {
			addresses = append(addresses, point.Hostname)
		}
	}
	slices.Sort(addresses)
	return slices.Compact(addresses)
}

func portList(ports []corev1.ServicePort) string {
	if len(ports) == 0 {
		return "<none>"
	}
	cells := make([]string, 0, len(ports))
	for _, port := range ports {
		if port.NodePort > 0 {
			cells = append(cells, fmt.Sprintf("%d:%d/%s", port.Port, port.NodePort, port.Protocol))
		} else {
			cells = append(cells, fmt.Sprintf("%d/%s", port.Port, port.Protocol))
		}
	}
	return strings.Join(cells, ",")
}
