package devicetainteviction

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/controllers/devicetaints"
)

// user is a pod with its claims.
type user struct {
	pod    *corev1.Pod
	claims map[string]*resourcev1.ResourceClaim
}

// counts is what a rule selects.
type counts struct {
	// published and allocated are devices in slices and in claims.
	published, allocated int
	// pods are to be evicted, in so many namespaces.
	pods, namespaces int
}

// count returns what a rule selects. With the effect None it is as if the effect was
// NoExecute.
func count(rule *resourcev1.DeviceTaintRule, t taints, claims []*resourcev1.ResourceClaim, users []user) counts {
	var c counts
	switch rule.Spec.Taint.Effect {
	case resourcev1.DeviceTaintEffectNoExecute:
	case resourcev1.DeviceTaintEffectNone:
		c.published, c.allocated = selected(rule, t, claims)
		t.rules = simulated(t.rules, rule)
	default:
		return c
	}
	namespaces := map[string]bool{}
	for _, u := range users {
		if evict(u.pod, u.claims, t).because(rule.UID) {
			c.pods++
			namespaces[u.pod.Namespace] = true
		}
	}
	c.namespaces = len(namespaces)
	return c
}

// simulated returns rules with the effect of one of them changed to NoExecute.
func simulated(rules []*resourcev1.DeviceTaintRule, rule *resourcev1.DeviceTaintRule) []*resourcev1.DeviceTaintRule {
	evicting := rule.DeepCopy()
	evicting.Spec.Taint.Effect = resourcev1.DeviceTaintEffectNoExecute
	all := []*resourcev1.DeviceTaintRule{evicting}
	for _, other := range rules {
		if other.UID != rule.UID {
			all = append(all, other)
		}
	}
	return all
}

// selected returns how many devices in slices and in claims a rule selects.
func selected(rule *resourcev1.DeviceTaintRule, t taints, claims []*resourcev1.ResourceClaim) (published, allocated int) {
	for p, devices := range t.pools {
		for name := range devices {
			if devicetaints.Selects(rule, p.driver, p.name, name) {
				published++
			}
		}
	}
	for _, claim := range claims {
		allocated += len(selectedOf(rule, claim))
	}
	return published, allocated
}

// selectedOf returns the allocated devices of a claim that a rule selects.
func selectedOf(rule *resourcev1.DeviceTaintRule, claim *resourcev1.ResourceClaim) []resourcev1.DeviceRequestAllocationResult {
	if claim.Status.Allocation == nil {
		return nil
	}
	var found []resourcev1.DeviceRequestAllocationResult
	for _, r := range claim.Status.Allocation.Devices.Results {
		if devicetaints.Selects(rule, r.Driver, r.Pool, r.Device) {
			found = append(found, r)
		}
	}
	return found
}

// condition returns the condition EvictionInProgress of a rule, without its time. evicted
// is how many pods this process has evicted because of the rule.
func condition(rule *resourcev1.DeviceTaintRule, c counts, evicted int) metav1.Condition {
	made := metav1.Condition{
		Type: resourcev1.DeviceTaintConditionEvictionInProgress, Status: metav1.ConditionFalse, ObservedGeneration: rule.Generation,
	}
	switch effect := rule.Spec.Taint.Effect; {
	case effect == resourcev1.DeviceTaintEffectNone:
		made.Reason = "NoEffect"
		made.Message = fmt.Sprintf("%s selected. %s selected. %s would be evicted in %s if the effect was NoExecute. "+
			"This information will not be updated again. Recreate the DeviceTaintRule to trigger an update.",
			number(c.published, "published device"), number(c.allocated, "allocated device"), number(c.pods, "pod"), places(c.namespaces))
	case effect != resourcev1.DeviceTaintEffectNoExecute:
		made.Reason, made.Message = "OtherEffect", "Eviction only happens for the NoExecute effect."
	case c.pods > 0:
		made.Status, made.Reason = metav1.ConditionTrue, "PodsPendingEviction"
		made.Message = fmt.Sprintf("%s need to be evicted in %s.", number(c.pods, "pod"), places(c.namespaces))
		if c.pods == 1 {
			made.Message = "1 pod needs to be evicted in 1 namespace."
		}
	case evicted > 0:
		made.Reason = "Completed"
	default:
		made.Reason = "NotStarted"
	}
	if evicted > 0 {
		if made.Message != "" {
			made.Message += " "
		}
		made.Message += number(evicted, "pod") + " evicted since starting the controller."
	}
	return made
}

// number returns how many things there are: 1 pod, 2 pods.
func number(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// places returns how many namespaces there are.
func places(n int) string {
	if n == 1 {
		return "1 namespace"
	}
	return fmt.Sprintf("%d different namespaces", n)
}

// statusPeriod is the shortest time between two updates of a rule's condition, unless the
// rule has changed.
const statusPeriod = 10 * time.Second

// wait returns how long the condition of a rule stays as it is.
func wait(rule *resourcev1.DeviceTaintRule, now time.Time) time.Duration {
	for _, c := range rule.Status.Conditions {
		if c.Type == resourcev1.DeviceTaintConditionEvictionInProgress && c.ObservedGeneration == rule.Generation {
			return max(statusPeriod-now.Sub(c.LastTransitionTime.Time), 0)
		}
	}
	return 0
}

// set replaces the condition of a rule, and reports whether it has changed. The time of
// the transition is that of any change.
func set(rule *resourcev1.DeviceTaintRule, c metav1.Condition, now time.Time) bool {
	c.LastTransitionTime = metav1.NewTime(now)
	for i, old := range rule.Status.Conditions {
		if old.Type != c.Type {
			continue
		}
		old.LastTransitionTime = c.LastTransitionTime
		if old == c {
			return false
		}
		rule.Status.Conditions[i] = c
		return true
	}
	rule.Status.Conditions = append(rule.Status.Conditions, c)
	return true
}
