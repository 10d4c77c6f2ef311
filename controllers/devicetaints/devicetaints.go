// Package devicetaints owns which taints the devices of dynamic resource allocation have
// (KEP-5055): those of their drivers' ResourceSlices, and those of DeviceTaintRules.
package devicetaints

import (
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/controllers/versions"
)

// Rules are the versions of DeviceTaintRule: releases before 1.37 have the second, and
// before 1.36 the third.
var Rules = []versions.Version[resourcev1.DeviceTaintRule]{
	versions.Of[resourcev1.DeviceTaintRule](),
	versions.Alike[resourcev1.DeviceTaintRule, resourcev1beta2.DeviceTaintRule](),
	versions.Alike[resourcev1.DeviceTaintRule, resourcev1alpha3.DeviceTaintRule](),
}

// The feature gates of the taints of devices, and of DeviceTaintRules. Release 1.34 does not
// have the second one: there, rules belong to the first one.
const (
	Gate      = "DRADeviceTaints"
	RulesGate = "DRADeviceTaintRules"
)

// ServedRules returns the version in which the API server serves DeviceTaintRules. ok is
// false if it serves none, and if they have no effect: kube-apiserver serves them without
// their gate, too, which is on by default since 1.37, the first release with the newest
// version (KEP-5055).
func ServedRules(served func(client.Object) (bool, error), gate func(name string) (on, set bool)) (version versions.Version[resourcev1.DeviceTaintRule], ok bool, err error) {
	version, ok, err = versions.Served(Rules, served)
	if !ok || err != nil {
		return version, ok, err
	}
	if on, set := gate(RulesGate); set {
		return version, on, nil
	}
	return version, version.Object == Rules[0].Object, nil
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
