package config

import (
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
