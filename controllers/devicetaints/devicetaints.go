// Package devicetaints owns which taints the devices of dynamic resource allocation have
// (KEP-5055): those of their drivers' ResourceSlices, and those of DeviceTaintRules.
package devicetaints

import (
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"

	"svc.dev/svc/controllers/versions"
)

// Rules are the versions of DeviceTaintRule: releases before 1.37 have the second, and
// before 1.36 the third.
var Rules = []versions.Version[resourcev1.DeviceTaintRule]{
	versions.Of[resourcev1.DeviceTaintRule](),
	versions.Alike[resourcev1.DeviceTaintRule, resourcev1beta2.DeviceTaintRule](),
	versions.Alike[resourcev1.DeviceTaintRule, resourcev1alpha3.DeviceTaintRule](),
}

// Selects reports whether a rule selects a device. A rule without a selector selects none,
// and one with an empty selector all.
func Selects(rule *resourcev1.DeviceTaintRule, driver, pool, device string) bool {
	s := rule.Spec.DeviceSelector
	return s != nil && is(s.Driver, driver) && is(s.Pool, pool) && is(s.Device, device)
}

func is(wanted *string, name string) bool { return wanted == nil || *wanted == name }

// Apply returns a slice whose devices have the taints of the rules, too: the slice itself
// if no rule selects one of them.
func Apply(slice *resourcev1.ResourceSlice, rules []*resourcev1.DeviceTaintRule) *resourcev1.ResourceSlice {
	tainted := slice
	for _, rule := range rules {
		for i := range slice.Spec.Devices {
			if !Selects(rule, slice.Spec.Driver, slice.Spec.Pool.Name, slice.Spec.Devices[i].Name) {
				continue
			}
			if tainted == slice {
				tainted = slice.DeepCopy()
			}
			tainted.Spec.Devices[i].Taints = append(tainted.Spec.Devices[i].Taints, rule.Spec.Taint)
		}
	}
	return tainted
}
