package devicetainteviction

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"svc.dev/svc/controllers/devicetaints"
	"svc.dev/svc/controllers/pods"
)

// taint is a NoExecute taint of a device.
type taint struct {
	resourcev1.DeviceTaint
	// rule is the DeviceTaintRule that has it; nil for a taint of a ResourceSlice.
	rule *resourcev1.DeviceTaintRule
}

// taints are what taints devices: all rules, and the slices of the pools that matter.
type taints struct {
	rules []*resourcev1.DeviceTaintRule
	pools map[pool]devices
}

// pool is a pool of a driver's devices.
type pool struct{ driver, name string }

// devices are the present devices of a pool, by their names.
type devices map[string]*resourcev1.Device

// newTaints returns the taints of rules and slices. Of the slices of a pool, only those of
// the latest generation are in force.
func newTaints(rules []*resourcev1.DeviceTaintRule, all []*resourcev1.ResourceSlice) taints {
	latest := map[pool]int64{}
	for _, s := range all {
		p := poolOf(s)
		if generation, ok := latest[p]; !ok || s.Spec.Pool.Generation > generation {
			latest[p] = s.Spec.Pool.Generation
		}
	}
	t := taints{rules: rules, pools: map[pool]devices{}}
	for _, s := range all {
		p := poolOf(s)
		if s.Spec.Pool.Generation != latest[p] {
			continue
		}
		if t.pools[p] == nil {
			t.pools[p] = devices{}
		}
		for i := range s.Spec.Devices {
			t.pools[p][s.Spec.Devices[i].Name] = &s.Spec.Devices[i]
		}
	}
	return t
}

func poolOf(s *resourcev1.ResourceSlice) pool { return pool{s.Spec.Driver, s.Spec.Pool.Name} }

// of returns the NoExecute taints of an allocated device, which need not be in a slice any
// more.
func (t taints) of(allocated *resourcev1.DeviceRequestAllocationResult) []taint {
	var found []taint
	if device := t.pools[pool{allocated.Driver, allocated.Pool}][allocated.Device]; device != nil {
		for _, own := range device.Taints {
			if own.Effect == resourcev1.DeviceTaintEffectNoExecute {
				found = append(found, taint{DeviceTaint: own})
			}
		}
	}
	for _, rule := range t.rules {
		if rule.Spec.Taint.Effect == resourcev1.DeviceTaintEffectNoExecute && devicetaints.Selects(rule, allocated.Driver, allocated.Pool, allocated.Device) {
			found = append(found, taint{DeviceTaint: rule.Spec.Taint, rule: rule})
		}
	}
	return found
}

// decision is when a pod is evicted, and because of which rules.
type decision struct {
	at    time.Time
	rules []*resourcev1.DeviceTaintRule
}

// because reports whether a rule is a reason of the eviction.
func (d *decision) because(rule types.UID) bool {
	return d != nil && slices.ContainsFunc(d.rules, func(r *resourcev1.DeviceTaintRule) bool { return r.UID == rule })
}

// evict returns when a pod is evicted, given those of its claims that exist, by their
// names; nil is never. Taints of any of its devices evict it, the first one at the time
// when it was added, or later if the allocation's tolerations say so.
func evict(pod *corev1.Pod, claims map[string]*resourcev1.ResourceClaim, t taints) *decision {
	if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || pods.IsTerminal(pod) {
		return nil
	}
	var d *decision
	for name, mustCheckOwner := range resourceclaim.PodClaims(pod) {
		claim := claims[name]
		if claim == nil || claim.Status.Allocation == nil || mustCheckOwner && resourceclaim.IsForPod(pod, claim, false) != nil || !resourceclaim.IsReservedForPod(pod, claim, false) {
			continue
		}
		for i := range claim.Status.Allocation.Devices.Results {
			allocated := &claim.Status.Allocation.Devices.Results[i]
			for _, taint := range t.of(allocated) {
				at, evicts := until(taint, allocated.Tolerations)
				if !evicts {
					continue
				}
				if d == nil {
					d = &decision{at: at}
				}
				if at.Before(d.at) {
					d.at = at
				}
				if taint.rule != nil && !d.because(taint.rule.UID) {
					d.rules = append(d.rules, taint.rule)
				}
			}
		}
	}
	if d != nil {
		slices.SortFunc(d.rules, func(a, b *resourcev1.DeviceTaintRule) int { return strings.Compare(a.Name, b.Name) })
	}
	return d
}

// until returns when a taint evicts the users of a device with tolerations. evicts is false
// if it is tolerated forever. Of several tolerations with a period the shortest counts. A
// toleration that is not for NoExecute alone has none.
func until(t taint, tolerations []resourcev1.DeviceToleration) (at time.Time, evicts bool) {
	if t.TimeAdded != nil {
		at = t.TimeAdded.Time
	}
	var period *int64
	for _, toleration := range tolerations {
		if !resourceclaim.ToleratesTaint(toleration, t.DeviceTaint) {
			continue
		}
		if toleration.TolerationSeconds == nil || toleration.Effect != resourcev1.DeviceTaintEffectNoExecute {
			return time.Time{}, false
		}
		if period == nil || *toleration.TolerationSeconds < *period {
			period = toleration.TolerationSeconds
		}
	}
	if period == nil {
		return at, true
	}
	return at.Add(time.Duration(max(*period, 0)) * time.Second), true
}

// noExecute returns the NoExecute taints of a slice's devices, by the devices' names.
func noExecute(s *resourcev1.ResourceSlice) map[string][]resourcev1.DeviceTaint {
	found := map[string][]resourcev1.DeviceTaint{}
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		for _, t := range d.Taints {
			if t.Effect == resourcev1.DeviceTaintEffectNoExecute {
				found[d.Name] = append(found[d.Name], t)
			}
		}
	}
	return found
}
