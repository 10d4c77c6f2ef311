package core

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	netutils "k8s.io/utils/net"
)

// servicePlan is what must be claimed and released so that a service gets
// what it needs and keeps no more.
type servicePlan struct {
	// ClaimIPs are indexes of spec.clusterIPs: addresses that the service names
	// and does not hold yet. PickIPs are indexes of spec.ipFamilies: families
	// of which the service gets any address, at the same index of clusterIPs.
	ClaimIPs, PickIPs []int
	// ClaimPorts and PickPorts are indexes of spec.ports whose node port is
	// named and not held yet, or is to be any.
	ClaimPorts, PickPorts []int
	// ClaimHealthPort and PickHealthPort say the same of healthCheckNodePort.
	ClaimHealthPort, PickHealthPort bool
}

// planService decides what a service must claim, given what it holds (old, nil
// on create). Its families are complete.
func planService(s, old *corev1.Service) servicePlan {
	var plan servicePlan
	heldIPs, heldPorts := holdings(old)
	if needsClusterIP(s) && !headless(s) {
		for i, ip := range s.Spec.ClusterIPs {
			if !slices.Contains(heldIPs, canonicalIP(ip)) {
				plan.ClaimIPs = append(plan.ClaimIPs, i)
			}
		}
		for i := len(s.Spec.ClusterIPs); i < len(s.Spec.IPFamilies); i++ {
			plan.PickIPs = append(plan.PickIPs, i)
		}
	}
	if hasNodePorts(s) {
		plan.planNodePorts(s, heldPorts)
	}
	if needsHealthCheckPort(s) {
		port := s.Spec.HealthCheckNodePort
		plan.PickHealthPort = port == 0
		// A port cannot serve health checks and traffic too: claiming it fails.
		plan.ClaimHealthPort = port != 0 && (!slices.Contains(heldPorts, portKey(port)) || slices.Contains(nodePortsOf(s), port))
	}
	return plan
}

// planNodePorts claims a number once, although two protocols may share it.
func (plan *servicePlan) planNodePorts(s *corev1.Service, held []string) {
	claimed := map[int32]bool{}
	for i, port := range s.Spec.Ports {
		switch {
		case port.NodePort == 0 && needsNodePorts(s):
			plan.PickPorts = append(plan.PickPorts, i)
		case port.NodePort != 0 && !claimed[port.NodePort] && !slices.Contains(held, portKey(port.NodePort)):
			plan.ClaimPorts = append(plan.ClaimPorts, i)
			claimed[port.NodePort] = true
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

// holdings are the keys that a service holds in the pools of addresses and of
// node ports; those of nil are none.
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

// without are the keys of had that are not in has.
func without(had, has []string) []string {
	var gone []string
	for _, key := range had {
		if !slices.Contains(has, key) {
			gone = append(gone, key)
		}
	}
	return gone
}

// canonicalIP is the address as the key of a claim: one address, one key.
func canonicalIP(ip string) string {
	if parsed := netutils.ParseIPSloppy(ip); parsed != nil {
		return parsed.String()
	}
	return ip
}

func portKey(port int32) string { return strconv.Itoa(int(port)) }
