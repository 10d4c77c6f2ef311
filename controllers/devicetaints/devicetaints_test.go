package devicetaints

import (
	"slices"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

func TestRulesHaveEffectWithTheirGate(t *testing.T) {
	type set = map[string]bool // the gates that the user has set
	newest, beta, alpha := Rules[0].Object, Rules[1].Object, Rules[2].Object
	for _, test := range []struct {
		name   string
		served []client.Object
		gates  set
		want   client.Object // nil if rules have no effect
	}{
		{"none is served", nil, set{RulesGate: true}, nil},
		{"since 1.37 they have", []client.Object{newest, beta}, nil, newest},
		{"unless they are switched off", []client.Object{newest, beta}, set{RulesGate: false}, nil},
		{"at 1.36 they have not, though they are served", []client.Object{beta, alpha}, nil, nil},
		{"without their gate", []client.Object{beta, alpha}, set{Gate: true}, nil},
		{"with it they have", []client.Object{beta, alpha}, set{RulesGate: true}, beta},
		{"at 1.35, too", []client.Object{alpha}, set{RulesGate: true}, alpha},
		{"where they are switched off by default", []client.Object{alpha}, nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			version, ok, err := ServedRules(
				func(obj client.Object) (bool, error) { return slices.Contains(test.served, obj), nil },
				func(name string) (on, set bool) { on, set = test.gates[name]; return on, set })
			if err != nil {
				t.Fatal(err)
			}
			if ok != (test.want != nil) || ok && version.Object != test.want {
				t.Errorf("version %T, effect %v, want %T", version.Object, ok, test.want)
			}
		})
	}
}
