package config

import (
	"fmt"
	"time"

	"k8s.io/component-base/featuregate"
)

func shutdownSettings() []Setting {
	return []Setting{
		{Field: "shutdownGracePeriod", Rule: notNegative(),
			Usage: "How long the shutdown of the machine is delayed, by systemd-logind, so that pods end before. 0 means not at all."},
		{Field: "shutdownGracePeriodCriticalPods", Rule: notNegative(), Usage: "The part of shutdownGracePeriod, at its end, that is for critical pods."},
		{Field: "shutdownGracePeriodByPodPriority", Usage: "In place of both: a list of priority, the lowest of a group of pods, and shutdownGracePeriodSeconds. Groups end one after the other, those with a lower priority first."},
	}
}

// shutdownPeriods returns what is wrong with the periods of a graceful shutdown.
func (s *Settings) shutdownPeriods() string {
	c := s.Configuration
	total, critical := c.ShutdownGracePeriod.Duration, c.ShutdownGracePeriodCriticalPods.Duration
	enabled := func(gate string) bool {
		return s.FeatureGates == nil || s.FeatureGates.Enabled(featuregate.Feature(gate))
	}
	switch {
	case len(c.ShutdownGracePeriodByPodPriority) > 0 && (total > 0 || critical > 0):
		return s.at("shutdownGracePeriodByPodPriority") + " replaces shutdownGracePeriod and shutdownGracePeriodCriticalPods: leave those out"
	case len(c.ShutdownGracePeriodByPodPriority) > 0 && !enabled(gateShutdownOrder):
		return s.at("shutdownGracePeriodByPodPriority") + " needs the feature gate " + gateShutdownOrder
	case total > 0 && !enabled(gateShutdown):
		return s.at("shutdownGracePeriod") + " needs the feature gate " + gateShutdown
	case critical > total:
		return fmt.Sprintf("%s is %s: must not be above shutdownGracePeriod, which is %s", s.at("shutdownGracePeriodCriticalPods"), critical, total)
	case total > 0 && total < time.Second || critical > 0 && critical < time.Second:
		return s.at("shutdownGracePeriod") + ": must be 0, or 1s or more, and so must shutdownGracePeriodCriticalPods"
	}
	return s.shutdownPriorities()
}

// shutdownPriorities returns what is wrong with the groups of a graceful shutdown.
func (s *Settings) shutdownPriorities() string {
	seen := map[int32]bool{}
	for _, group := range s.Configuration.ShutdownGracePeriodByPodPriority {
		switch {
		case seen[group.Priority]:
			return fmt.Sprintf("%s has the priority %d twice", s.at("shutdownGracePeriodByPodPriority"), group.Priority)
		case group.ShutdownGracePeriodSeconds < 0:
			return fmt.Sprintf("%s: shutdownGracePeriodSeconds of priority %d is %d: must be 0 or more", s.at("shutdownGracePeriodByPodPriority"), group.Priority, group.ShutdownGracePeriodSeconds)
		}
		seen[group.Priority] = true
	}
	return ""
}
