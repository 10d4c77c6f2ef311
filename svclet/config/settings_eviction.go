package config

import (
	"fmt"
	"maps"

	"svc.dev/svc/svclet/eviction/threshold"
)

func evictionSettings() []Setting {
	return []Setting{
		{Flag: "eviction-hard", Field: "evictionHard", Deprecated: true, Separator: "<",
			Usage: "Thresholds that evict pods at once, as memory.available<100Mi,nodefs.available<10%. They are not allocatable. Empty turns them off."},
		{Flag: "eviction-soft", Field: "evictionSoft", Deprecated: true, Separator: "<",
			Usage: "Thresholds that evict pods after their grace period, as memory.available<300Mi. Each needs one in --eviction-soft-grace-period."},
		{Flag: "eviction-soft-grace-period", Field: "evictionSoftGracePeriod", Deprecated: true,
			Usage: "How long soft thresholds are met before pods are evicted, as memory.available=30s."},
		{Flag: "kernel-memcg-notification", Field: "kernelMemcgNotification", Deprecated: true,
			Usage: "Measure the memory of the node as soon as the kernel notices that a threshold may be met, and not only every ten seconds. Cgroup v1 only: v2 has no such notification."},
		{Flag: "eviction-max-pod-grace-period", Field: "evictionMaxPodGracePeriod", Deprecated: true,
			Usage: "Maximum grace period, in seconds, of pods that soft thresholds evict. A negative value leaves the pod's own."},
		{Flag: "eviction-minimum-reclaim", Field: "evictionMinimumReclaim", Deprecated: true,
			Usage: "How much more than a threshold has to be available before it is not met any more, as imagefs.available=2Gi."},
		{Flag: "eviction-pressure-transition-period", Field: "evictionPressureTransitionPeriod", Deprecated: true, Rule: notNegative(),
			Usage: "How long a pressure condition of the node lasts after its thresholds were last met."},
		{Field: "mergeDefaultEvictionSettings", Usage: "Keep the defaults of evictionHard for the signals that it does not name."},
		{Flag: "experimental-allocatable-ignore-eviction", Deprecated: true, Usage: "Ignore eviction thresholds when node allocatable is computed. Removal in 1.24 or later."},
	}
}

// defaultEvictionHard returns the hard thresholds of document 3 section 8.
func defaultEvictionHard() map[string]string {
	return map[string]string{
		string(threshold.ImageFs): "15%", string(threshold.Memory): "100Mi", string(threshold.NodeFs): "10%", string(threshold.NodeFsInodes): "5%",
	}
}

// mergeEviction adds the default hard thresholds, if the configuration asks for that.
func mergeEviction(c *Configuration) {
	if c.MergeDefaultEvictionSettings == nil || !*c.MergeDefaultEvictionSettings {
		return
	}
	merged := defaultEvictionHard()
	maps.Copy(merged, c.EvictionHard)
	c.EvictionHard = merged
}

// imageThresholdsInOrder is of document 3 section 8.
func (s *Settings) imageThresholdsInOrder() string {
	if high, low := *s.Configuration.ImageGCHighThresholdPercent, *s.Configuration.ImageGCLowThresholdPercent; low > high {
		return fmt.Sprintf("%s is %d: must not be above imageGCHighThresholdPercent (--image-gc-high-threshold), which is %d", s.at("imageGCLowThresholdPercent"), low, high)
	}
	return ""
}

// imageAgesInOrder is kubelet's rule: an image that is too young to be removed cannot be
// too old to be kept.
func (s *Settings) imageAgesInOrder() string {
	if highest, lowest := s.Configuration.ImageMaximumGCAge.Duration, s.Configuration.ImageMinimumGCAge.Duration; highest > 0 && highest <= lowest {
		return fmt.Sprintf("%s is %v: must be 0, or above imageMinimumGCAge (--minimum-image-ttl-duration), which is %v", s.at("imageMaximumGCAge"), highest, lowest)
	}
	return ""
}

// thresholdsParse returns what is wrong with the eviction thresholds. One message names
// one of them.
func (s *Settings) thresholdsParse() string {
	c := s.Configuration
	for _, part := range []struct {
		field    string
		settings threshold.Settings
	}{
		{"evictionHard", threshold.Settings{Hard: c.EvictionHard}},
		{"evictionMinimumReclaim", threshold.Settings{Reclaim: c.EvictionMinimumReclaim}},
		{"evictionSoftGracePeriod", threshold.Settings{SoftGrace: c.EvictionSoftGracePeriod}},
		{"evictionSoft", threshold.Settings{Soft: c.EvictionSoft, SoftGrace: c.EvictionSoftGracePeriod}},
	} {
		if _, err := threshold.Parse(part.settings); err != nil {
			return fmt.Sprintf("%s: %v", s.at(part.field), err)
		}
	}
	return ""
}
