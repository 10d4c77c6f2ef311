package config

import (
	"fmt"
	"slices"
	"strings"

	"svc.dev/svc/internal/featuregates"
)

// warn adds warnings about deprecated settings and settings without effect.
func (s *Settings) warn() {
	for i := range s.table {
		of := &s.table[i]
		switch byFlag := of.Flag != "" && s.given[of.Flag]; {
		case byFlag && of.NoEffect != "" && of.Deprecated:
			s.Warnings = append(s.Warnings, fmt.Sprintf("--%s is deprecated and has no effect: %s", of.Flag, of.NoEffect))
		case byFlag && of.Deprecated && of.Field != "":
			s.Warnings = append(s.Warnings, fmt.Sprintf("--%s is deprecated; set %s in the file of --config", of.Flag, of.Field))
		case byFlag && of.Deprecated:
			s.Warnings = append(s.Warnings, fmt.Sprintf("--%s is deprecated", of.Flag))
		}
	}
	s.warnGates()
	s.warnOpen()
}

// warnGates adds warnings about feature gates that are set and have no effect.
func (s *Settings) warnGates() {
	effects := gateEffects()
	var idle []string
	for name := range sorted(s.Configuration.FeatureGates) {
		name = featuregates.Own(name)
		if effects[name] == "" && name != featuregates.AllAlpha && name != featuregates.AllBeta {
			idle = append(idle, name)
		}
	}
	if len(idle) > 0 {
		s.Warnings = append(s.Warnings, fmt.Sprintf("%s: svclet does not act on %s", s.at("featureGates"), strings.Join(idle, ", ")))
	}
}

// warnOpen adds a warning if every client of the server is authorized for
// everything.
func (s *Settings) warnOpen() {
	c := s.Configuration
	loopback := slices.Contains([]string{"127.0.0.1", "::1"}, c.Address)
	if *c.EnableServer && !loopback && *c.EnableDebuggingHandlers && *c.Authentication.Anonymous.Enabled && c.Authorization.Mode == "AlwaysAllow" {
		s.Warnings = append(s.Warnings, fmt.Sprintf("any client that reaches port %d may run commands in containers: set authentication.anonymous.enabled to false and authorization.mode to Webhook", c.Port))
	}
}
