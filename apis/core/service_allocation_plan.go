package core

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	netutils "k8s.io/utils/net"
)

// servicePlan lists the addresses and node ports that a service needs and does
// not hold yet.
type servicePlan struct {
	// ReserveIPs are indexes of spec.clusterIPs: addresses that the service names
	// and does not hold yet. AllocateIPs are indexes of spec.ipFamilies: families
	// of which any address is allocated, at the same index of clusterIPs.
	ReserveIPs, AllocateIPs []int
	// ReservePorts and AllocatePorts are indexes of spec.ports: those whose node
	// port is named and not held yet, and those that get any node port.
	ReservePorts, AllocatePorts []int
	// ReserveHealthPort and AllocateHealthPort say the same of healthCheckNodePort.
	ReserveHealthPort, AllocateHealthPort bool
}

// planService decides which keys a service must reserve and allocate, given the
// keys that it holds (old, nil on create). Its IP families are complete.
func planService(s, old *corev1.Service) servicePlan {
	var plan servicePlan
	heldIPs, heldPorts := holdings(old)
	if needsClusterIP(s) && !headless(s) {
		for i, ip := range s.Spec.ClusterIPs {
			if !slices.Contains(heldIPs, canonicalIP(ip)) {
				plan.ReserveIPs = append(plan.ReserveIPs, i)
			}
		}
		for i := len(s.Spec.ClusterIPs); i < len(s.Spec.IPFamilies); i++ {
			plan.AllocateIPs = append(plan.AllocateIPs, i)
		}
	}
	if hasNodePorts(s) {
		plan.planNodePorts(s, heldPorts)
	}
	if needsHealthCheckPort(s) {
		port := s.Spec.HealthCheckNodePort
		plan.AllocateHealthPort = port == 0
		// A port cannot serve both health checks and traffic: reserving it again fails.
		plan.ReserveHealthPort = port != 0 && (!slices.Contains(heldPorts, portKey(port)) || slices.Contains(nodePortsOf(s), port))
	}
	return plan
}

// planNodePorts reserves a port number once, although two protocols may share it.
func (plan *servicePlan) planNodePorts(s *corev1.Service, held []string) {
	reserved := map[int32]bool{}
	for i, port := range s.Spec.Ports {
		switch {
		case port.NodePort == 0 && needsNodePorts(s):
			plan.AllocatePorts = append(plan.AllocatePorts, i)
		case port.NodePort != 0 && !reserved[port.NodePort] && !slices.Contains(held, portKey(port.NodePort)):
			plan.ReservePorts = append(plan.ReservePorts, i)
			reserved[port.NodePort] = true
		}
	}
}

// shareNodePorts gives ports of a new service that differ only in protocol the
// same node port.
func shareNodePorts(s *corev1.Service) {
	if !needsNodePorts(s) {
		return
	}
	byPort := map[int32]int32{}
	for _, port := range s.Spec.Ports {
		if byPort[port.Port] == 0 {
			byPort[port.Port] = port.NodePort
		}
	}
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		taken := slices.ContainsFunc(s.Spec.Ports, func(other corev1.ServicePort) bool {
			return other.Protocol == port.Protocol && other.NodePort == byPort[port.Port]
		})
		if port.NodePort == 0 && !taken {
			port.NodePort = byPort[port.Port]
		}
	}
}

// holdings returns the keys that a service holds in the pools of addresses and
// of node ports; nil holds none.
func holdings(s *corev1.Service) (ips, ports []string) {
	if s == nil {
		return nil, nil
	}
	if needsClusterIP(s) && !headless(s) {
		for _, ip := range s.Spec.ClusterIPs {
			ips = append(ips, canonicalIP(ip))
		}
	}
	if hasNodePorts(s) {
		for _, port := range nodePortsOf(s) {
			if key := portKey(port); !slices.Contains(ports, key) {
				ports = append(ports, key)
			}
		}
	}
	if needsHealthCheckPort(s) && s.Spec.HealthCheckNodePort != 0 {
		if key := portKey(s.Spec.HealthCheckNodePort); !slices.Contains(ports, key) {
			ports = append(ports, key)
		}
	}
	return ips, ports
}

// without returns the keys of had that are not in has.
func without(had, has []string) []string {
	var gone []string
	for _, key := range had {
		if !slices.Contains(has, key) {
			gone = append(gone, key)
		}
	}
	return gone
}

// canonicalIP returns the canonical form of an address, which is its key in the
// pool: each address has exactly one key.
func canonicalIP(ip string) string {
	if parsed := netutils.ParseIPSloppy(ip); parsed != nil {
		return parsed.String()
	}
	return ip
}

func portKey(port int32) string { return strconv.Itoa(int(port)) }
