package resource_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

func TestFillSetsWhatHasNoValue(t *testing.T) {
	var unset *int
	set := new(3)
	resource.Fill(&unset, 7)
	resource.Fill(&set, 7)
	if *unset != 7 || *set != 3 {
		t.Errorf("got %d and %d", *unset, *set)
	}
	empty, full := "", "full"
	resource.FillEmpty(&empty, "default")
	resource.FillEmpty(&full, "default")
	if empty != "default" || full != "full" {
		t.Errorf("got %q and %q", empty, full)
	}
}

func TestRulesOfFields(t *testing.T) {
	path := field.NewPath("spec", "x")
	for _, test := range []struct {
		rule string
		errs field.ErrorList
		want string
	}{
		{"a value of the enumeration", resource.OneOf(path, "b", "b", "a"), ""},
		{"another value", resource.OneOf(path, "c", "b", "a"), `spec.x: Unsupported value: "c": supported values: "b", "a"`},
		{"no messages", resource.Invalid(path, "v", nil), ""},
		{"a message", resource.Invalid(path, "v", []string{"must be w"}), `spec.x: Invalid value: "v": must be w`},
		{"an address", resource.IP(path, "10.0.0.1"), ""},
		{"no address", resource.IP(path, "10.0.0"), `spec.x: Invalid value: "10.0.0": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`},
		{"a range", resource.CIDR(path, "10.0.0.0/8"), ""},
		{"a reachable address", resource.ReachableIP(path, "2001:db8::1"), ""},
		{"not an address at all", resource.ReachableIP(path, "x"), `spec.x: Invalid value: "x": must be a valid IP address`},
		{"an unspecified address", resource.ReachableIP(path, "::"), `spec.x: Invalid value: "::": may not be unspecified (::)`},
		{"a loopback address", resource.ReachableIP(path, "127.1.2.3"), `spec.x: Invalid value: "127.1.2.3": may not be in the loopback range (127.0.0.0/8, ::1/128)`},
		{"a loopback address in the other family's form", resource.ReachableIP(path, "::ffff:127.0.0.1"),
			`spec.x: Invalid value: "::ffff:127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`},
		{"a link-local address", resource.ReachableIP(path, "fe80::1"), `spec.x: Invalid value: "fe80::1": may not be in the link-local range (169.254.0.0/16, fe80::/10)`},
		{"a link-local multicast address", resource.ReachableIP(path, "224.0.0.1"),
			`spec.x: Invalid value: "224.0.0.1": may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)`},
	} {
		t.Run(test.rule, func(t *testing.T) {
			got := ""
			if err := test.errs.ToAggregate(); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestPathSegmentNames(t *testing.T) {
	for name, ok := range map[string]bool{"system:node": true, "a b": true, "a/b": false, "..": false, "100%": false} {
		if got := len(resource.PathSegmentName(name, false)) == 0; got != ok {
			t.Errorf("%q is accepted: %v", name, got)
		}
	}
}
