package decide

import (
	"math"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

// Memory is what the controller remembers of an autoscaler, as long as it runs.
type Memory struct {
	// recommendations are those of former syncs, before stabilization.
	recommendations []change
	// ups and downs are changes of the number of replicas.
	ups, downs []change
}

// change is a number of replicas at a time.
type change struct {
	replicas int32
	at       time.Time
}

// Limits are what bounds a number of replicas.
type Limits struct {
	Min, Max int32
	Behavior *autoscalingv2.HorizontalPodAutoscalerBehavior
}

// Reason is the reason of a condition.
type Reason struct{ Reason, Message string }

// Limited is a number of replicas within its limits.
type Limited struct {
	Replicas int32
	// Able is the reason of the condition AbleToScale. Limit is that of ScalingLimited,
	// which is true if Bounded is.
	Able, Limit Reason
	Bounded     bool
}

var (
	readyForNewScale    = Reason{"ReadyForNewScale", "recommended size matches current size"}
	scaleUpStabilized   = Reason{"ScaleUpStabilized", "recent recommendations were lower than current one, applying the lowest recent recommendation"}
	scaleDownStabilized = Reason{"ScaleDownStabilized", "recent recommendations were higher than current one, applying the highest recent recommendation"}

	withinRange    = Reason{"DesiredWithinRange", "the desired count is within the acceptable range"}
	tooMany        = Reason{"TooManyReplicas", "the desired replica count is more than the maximum replica count"}
	tooFew         = Reason{"TooFewReplicas", "the desired replica count is less than the minimum replica count"}
	scaleUpLimit   = Reason{"ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate"}
	scaleDownLimit = Reason{"ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate"}
)

// Start records the current number of replicas as the first recommendation, so that a
// controller that has just started does not scale down at once.
func (m *Memory) Start(current int32, now time.Time) {
	if m.recommendations == nil {
		m.recommendations = []change{{current, now}}
	}
}

// Scaled records a change of the number of replicas, for the policies of a behavior.
func (m *Memory) Scaled(behavior *autoscalingv2.HorizontalPodAutoscalerBehavior, before, after int32, now time.Time) {
	switch {
	case behavior == nil:
	case after > before:
		m.ups = append(recent(m.ups, behavior.ScaleUp, now), change{after - before, now})
	case after < before:
		m.downs = append(recent(m.downs, behavior.ScaleDown, now), change{before - after, now})
	}
}

// recent returns the changes within the longest period of the rules.
func recent(changes []change, rules *autoscalingv2.HPAScalingRules, now time.Time) []change {
	var longest int32
	if rules != nil {
		for _, policy := range rules.Policies {
			longest = max(longest, policy.PeriodSeconds)
		}
	}
	cutoff := now.Add(-seconds(longest))
	return slices.DeleteFunc(changes, func(c change) bool { return c.at.Before(cutoff) })
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

// Limit bounds the number of replicas that was proposed at a time.
func (m *Memory) Limit(limits Limits, downscale time.Duration, current, proposed int32, now time.Time) Limited {
	up, down := time.Duration(0), downscale
	if b := limits.Behavior; b != nil {
		if b.ScaleUp != nil && b.ScaleUp.StabilizationWindowSeconds != nil {
			up = seconds(*b.ScaleUp.StabilizationWindowSeconds)
		}
		if b.ScaleDown != nil && b.ScaleDown.StabilizationWindowSeconds != nil {
			down = seconds(*b.ScaleDown.StabilizationWindowSeconds)
		}
	}
	l := Limited{Able: readyForNewScale}
	stable := m.stabilize(limits.Behavior != nil, up, down, current, proposed, now)
	if stable != proposed {
		l.Able = scaleDownStabilized
		if limits.Behavior != nil && proposed >= current {
			l.Able = scaleUpStabilized
		}
	}
	if limits.Behavior == nil {
		l.Replicas, l.Limit = byRange(limits, current, stable)
	} else {
		l.Replicas, l.Limit = m.byRate(limits, current, stable, now)
	}
	l.Bounded = l.Replicas != stable
	return l
}

// stabilize records a recommendation, and returns the one that holds in the windows:
// the highest of the window of scaling down and, with a behavior, the lowest of that of
// scaling up.
func (m *Memory) stabilize(behavior bool, up, down time.Duration, current, proposed int32, now time.Time) int32 {
	lowest, highest := proposed, proposed
	kept := m.recommendations[:0]
	for _, r := range m.recommendations {
		inUp, inDown := r.at.After(now.Add(-up)), r.at.After(now.Add(-down))
		if inUp {
			lowest = min(lowest, r.replicas)
		}
		if inDown {
			highest = max(highest, r.replicas)
		}
		if inUp || inDown {
			kept = append(kept, r)
		}
	}
	m.recommendations = append(kept, change{proposed, now})
	if !behavior {
		return highest
	}
	return min(max(current, lowest), highest)
}

// byRange bounds a number of replicas by the minimum, the maximum and twice the current
// number, but at least four.
func byRange(limits Limits, current, wanted int32) (int32, Reason) {
	const least, factor = 4, 2
	allowed, reason := limits.Max, tooMany
	if rate := max(factor*current, least); rate < allowed {
		allowed, reason = rate, scaleUpLimit
	}
	switch {
	case wanted < limits.Min:
		return limits.Min, tooFew
	case wanted > allowed:
		return allowed, reason
	}
	return wanted, withinRange
}

// byRate bounds a number of replicas by the minimum, the maximum and the policies.
func (m *Memory) byRate(limits Limits, current, wanted int32, now time.Time) (int32, Reason) {
	switch {
	case wanted > current:
		allowed, reason := limits.Max, tooMany
		if rate := max(current, m.upLimit(limits.Behavior.ScaleUp, current, now)); rate < allowed {
			allowed, reason = rate, scaleUpLimit
		}
		if wanted > allowed {
			return allowed, reason
		}
	case wanted < current:
		allowed, reason := limits.Min, tooFew
		if rate := min(current, m.downLimit(limits.Behavior.ScaleDown, current, now)); rate > allowed {
			allowed, reason = rate, scaleDownLimit
		}
		if wanted < allowed {
			return allowed, reason
		}
	}
	return wanted, withinRange
}

// upLimit returns the largest number of replicas that the policies allow.
func (m *Memory) upLimit(rules *autoscalingv2.HPAScalingRules, current int32, now time.Time) int32 {
	if rules == nil {
		return math.MaxInt32
	}
	return m.allowed(rules, current, now, func(start int32, policy autoscalingv2.HPAScalingPolicy) int32 {
		if policy.Type == autoscalingv2.PodsScalingPolicy {
			return start + policy.Value
		}
		return ceil(float64(start) * (1 + float64(policy.Value)/100))
	}, func(a, b int32) int32 { return max(a, b) }, func(a, b int32) int32 { return min(a, b) })
}

// downLimit returns the smallest number of replicas that the policies allow.
func (m *Memory) downLimit(rules *autoscalingv2.HPAScalingRules, current int32, now time.Time) int32 {
	if rules == nil {
		return 0
	}
	return m.allowed(rules, current, now, func(start int32, policy autoscalingv2.HPAScalingPolicy) int32 {
		if policy.Type == autoscalingv2.PodsScalingPolicy {
			return start - policy.Value
		}
		return int32(float64(start) * (1 - float64(policy.Value)/100))
	}, func(a, b int32) int32 { return min(a, b) }, func(a, b int32) int32 { return max(a, b) })
}

// allowed returns the number of replicas that the policies allow: that of the policy
// with the largest change, or the smallest with selectPolicy Min. What was changed in
// the period of a policy counts as part of it.
func (m *Memory) allowed(rules *autoscalingv2.HPAScalingRules, current int32, now time.Time, of func(start int32, policy autoscalingv2.HPAScalingPolicy) int32, most, least func(a, b int32) int32) int32 {
	choose := most
	if rules.SelectPolicy != nil {
		switch *rules.SelectPolicy {
		case autoscalingv2.DisabledPolicySelect:
			return current
		case autoscalingv2.MinChangePolicySelect:
			choose = least
		}
	}
	result := current
	for i, policy := range rules.Policies {
		start := current - within(m.ups, policy.PeriodSeconds, now) + within(m.downs, policy.PeriodSeconds, now)
		if allowed := of(start, policy); i == 0 {
			result = allowed
		} else {
			result = choose(result, allowed)
		}
	}
	return result
}

// within returns the sum of the changes in a period that ends now.
func within(changes []change, period int32, now time.Time) int32 {
	var sum int32
	for _, c := range changes {
		if c.at.After(now.Add(-seconds(period))) {
			sum += c.replicas
		}
	}
	return sum
}
