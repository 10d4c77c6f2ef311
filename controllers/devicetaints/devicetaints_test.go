package devicetaints

import (
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
)

func TestRuleSelectsDevices(t *testing.T) {
	name := func(s string) *string { return &s }
	for _, test := range []struct {
		name     string
		selector *resourcev1.DeviceTaintSelector
		want     bool
	}{
		{"without a selector none", nil, false},
		{"with an empty selector all", &resourcev1.DeviceTaintSelector{}, true},
		{"of a driver", &resourcev1.DeviceTaintSelector{Driver: name("d")}, true},
		{"of another driver", &resourcev1.DeviceTaintSelector{Driver: name("x")}, false},
		{"of another pool", &resourcev1.DeviceTaintSelector{Driver: name("d"), Pool: name("x")}, false},
		{"one", &resourcev1.DeviceTaintSelector{Driver: name("d"), Pool: name("p"), Device: name("gpu")}, true},
		{"another one", &resourcev1.DeviceTaintSelector{Device: name("x")}, false},
	} {
		rule := &resourcev1.DeviceTaintRule{Spec: resourcev1.DeviceTaintRuleSpec{DeviceSelector: test.selector}}
		if got := Selects(rule, "d", "p", "gpu"); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

func TestSliceOfTheCacheStaysAsItIs(t *testing.T) {
	one := "one"
	slice := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{Devices: []resourcev1.Device{{Name: "one", Taints: []resourcev1.DeviceTaint{{Key: "own"}}}, {Name: "two"}}}}
	rule := &resourcev1.DeviceTaintRule{Spec: resourcev1.DeviceTaintRuleSpec{DeviceSelector: &resourcev1.DeviceTaintSelector{Device: &one}, Taint: resourcev1.DeviceTaint{Key: "added"}}}
	tainted := Apply(slice, []*resourcev1.DeviceTaintRule{rule})
	if len(slice.Spec.Devices[0].Taints) != 1 || len(tainted.Spec.Devices[0].Taints) != 2 || len(tainted.Spec.Devices[1].Taints) != 0 {
		t.Errorf("before %+v, after %+v", slice.Spec.Devices, tainted.Spec.Devices)
	}
	if Apply(slice, nil) != slice {
		t.Error("a slice was copied without need")
	}
}
