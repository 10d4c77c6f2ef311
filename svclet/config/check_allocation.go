package config

import (
	"fmt"

	tracingapi "k8s.io/component-base/tracing/api/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/cpus"
	"svc.dev/svc/svclet/topology"
)

// cpuOptionsFit checks the options of the CPU manager and their gates.
func (s *Settings) cpuOptionsFit() string {
	given := s.Configuration.CPUManagerPolicyOptions
	switch {
	case len(given) == 0 || s.FeatureGates == nil:
		return ""
	case !s.FeatureGates.Enabled(gateCPUOptions):
		return s.at("cpuManagerPolicyOptions") + " needs the feature gate " + gateCPUOptions
	case s.Configuration.CPUManagerPolicy != CPUManagerStatic:
		return s.at("cpuManagerPolicyOptions") + " needs cpuManagerPolicy (--cpu-manager-policy) static: set it, or leave the options out"
	}
	if _, err := cpus.ParseOptions(given, s.FeatureGates.Enabled(gateCPUBeta), s.FeatureGates.Enabled(gateCPUAlpha)); err != nil {
		return s.at("cpuManagerPolicyOptions") + ": " + err.Error()
	}
	return ""
}

// memoryPolicyFits checks the memory manager's policy, its gate and its reservations.
func (s *Settings) memoryPolicyFits() string {
	c := s.Configuration
	switch static := c.MemoryManagerPolicy == MemoryManagerStatic; {
	case !static && len(c.ReservedMemory) > 0:
		return s.at("reservedMemory") + " needs memoryManagerPolicy (--memory-manager-policy) Static: set it, or leave the reservations out"
	case static && s.FeatureGates != nil && !s.FeatureGates.Enabled(gateMemoryManager):
		return s.at("memoryManagerPolicy") + " is Static: needs the feature gate " + gateMemoryManager
	case static && len(c.ReservedMemory) == 0:
		return s.at("memoryManagerPolicy") + " is Static: set reservedMemory (--reserved-memory), too"
	}
	return ""
}

// logQueryFits checks the gate of queries for logs.
func (s *Settings) logQueryFits() string {
	c := s.Configuration
	switch asked := c.EnableSystemLogQuery != nil && *c.EnableSystemLogQuery; {
	case asked && c.EnableSystemLogHandler != nil && !*c.EnableSystemLogHandler:
		return s.at("enableSystemLogQuery") + " is true: needs enableSystemLogHandler, too"
	case asked && s.FeatureGates != nil && !s.FeatureGates.Enabled(gateLogQuery):
		return s.at("enableSystemLogQuery") + " is true: needs the feature gate " + gateLogQuery
	}
	return ""
}

// memoryQoSFits checks the settings of MemoryQoS and their gate.
func (s *Settings) memoryQoSFits() string {
	c := s.Configuration
	off := s.FeatureGates != nil && !s.FeatureGates.Enabled(gateMemoryQoS)
	switch factor := ptr.Deref(c.MemoryThrottlingFactor, defaultThrottling); {
	case !(factor > 0 && factor <= 1): // also if it is not a number
		return fmt.Sprintf("%s is %v: must be above 0, and at most 1", s.at("memoryThrottlingFactor"), factor)
	case off && factor != defaultThrottling:
		return s.at("memoryThrottlingFactor") + " needs the feature gate " + gateMemoryQoS
	case off && c.MemoryReservationPolicy == kubeletconfig.TieredReservationMemoryReservationPolicy:
		return s.at("memoryReservationPolicy") + " needs the feature gate " + gateMemoryQoS
	}
	return ""
}

// tracingFits checks where spans are sent, and the gate.
func (s *Settings) tracingFits() string {
	c := s.Configuration.Tracing
	if c == nil {
		return ""
	}
	if s.FeatureGates != nil && !s.FeatureGates.Enabled(gateTracing) {
		return s.at("tracing") + " needs the feature gate " + gateTracing
	}
	if rate := ptr.Deref(c.SamplingRatePerMillion, 0); rate < 0 || rate > 1_000_000 {
		return fmt.Sprintf("%s: samplingRatePerMillion is %d: must be from 0 to 1000000", s.at("tracing"), rate)
	}
	if errs := tracingapi.ValidateTracingConfiguration(c, nil, nil); len(errs) > 0 {
		return fmt.Sprintf("%s: endpoint is %q: must be HOST:PORT, or begin with dns:// or unix://", s.at("tracing"), *c.Endpoint)
	}
	return ""
}

// topologyOptionsFit checks the options of the topology manager and their gates.
func (s *Settings) topologyOptionsFit() string {
	given := s.Configuration.TopologyManagerPolicyOptions
	switch {
	case len(given) == 0 || s.FeatureGates == nil:
		return ""
	case !s.FeatureGates.Enabled(gateTopologyOptions):
		return s.at("topologyManagerPolicyOptions") + " needs the feature gate " + gateTopologyOptions
	}
	if _, err := topology.ParseOptions(given, s.FeatureGates.Enabled(gateTopologyBeta)); err != nil {
		return s.at("topologyManagerPolicyOptions") + ": " + err.Error()
	}
	return ""
}
