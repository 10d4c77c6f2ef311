package core

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestServiceFamilies(t *testing.T) {
	const v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
	const single, prefer, require = corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack
	type families = []corev1.IPFamily
	type ips = []string
	spec := func(policy corev1.IPFamilyPolicy, f families, addresses ips) *corev1.Service {
		return service("a", func(s *corev1.Service) {
			if policy != "" {
				s.Spec.IPFamilyPolicy = &policy
			}
			s.Spec.IPFamilies, s.Spec.ClusterIPs = f, addresses
			if len(addresses) > 0 {
				s.Spec.ClusterIP = addresses[0]
			}
		})
	}
	lone := func(s *corev1.Service) *corev1.Service { s.Spec.Selector = nil; return s }
	for _, test := range []struct {
		rule       string
		configured families
		old, s     *corev1.Service
		policy     corev1.IPFamilyPolicy
		families   families
		ips        ips
		err        string
	}{
		{rule: "single-stack of the primary family by default", configured: families{v6, v4}, s: spec("", nil, nil), policy: single, families: families{v6}},
		{rule: "the family follows the address", configured: families{v4, v6}, s: spec("", nil, ips{"fd00::1"}), policy: single, families: families{v6}, ips: ips{"fd00::1"}},
		{rule: "preferring both gets both if there are", configured: families{v4, v6}, s: spec(prefer, nil, nil), policy: prefer, families: families{v4, v6}},
		{rule: "preferring both gets one if there is one", configured: families{v4}, s: spec(prefer, nil, nil), policy: prefer, families: families{v4}},
		{rule: "the client's order of families stays", configured: families{v4, v6}, s: spec(require, families{v6}, nil), policy: require, families: families{v6, v4}},
		{rule: "requiring both fails if there is one", configured: families{v4}, s: spec(require, nil, nil), err: "this cluster is not configured for dual-stack services"},
		{rule: "a family must be configured", configured: families{v4}, s: spec("", families{v6}, nil), err: `spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster`},
		{rule: "an address must be of a configured family", configured: families{v4}, s: spec("", nil, ips{"fd00::1"}), err: "IPv6 is not configured on this cluster"},
		{rule: "two addresses need a policy", configured: families{v4, v6}, s: spec("", nil, ips{"10.0.0.1", "fd00::1"}), err: "must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified"},
		{rule: "two families need a policy", configured: families{v4, v6}, s: spec("", families{v4, v6}, nil), err: "when multiple IP families are specified"},
		{rule: "headless without selector has both, configured or not", configured: families{v4}, s: lone(spec("", nil, ips{"None"})), policy: require, families: families{v4, v6}, ips: ips{"None"}},
		{rule: "headless with selector has one", configured: families{v4}, s: spec("", nil, ips{"None"}), policy: single, families: families{v4}, ips: ips{"None"}},

		{rule: "an update without a policy keeps it", configured: families{v4, v6}, old: spec(require, families{v4, v6}, ips{"10.0.0.1", "fd00::1"}),
			s: spec("", nil, ips{"10.0.0.1", "fd00::1"}), policy: require, families: families{v4, v6}, ips: ips{"10.0.0.1", "fd00::1"}},
		{rule: "a second family can be added", configured: families{v4, v6}, old: spec(single, families{v4}, ips{"10.0.0.1"}),
			s: spec(require, families{v4}, ips{"10.0.0.1"}), policy: require, families: families{v4, v6}, ips: ips{"10.0.0.1"}},
		{rule: "becoming single-stack drops the second family", configured: families{v4, v6}, old: spec(require, families{v4, v6}, ips{"10.0.0.1", "fd00::1"}),
			s: spec(single, families{v4, v6}, ips{"10.0.0.1", "fd00::1"}), policy: single, families: families{v4}, ips: ips{"10.0.0.1"}},
		{rule: "an address goes only with the policy", configured: families{v4, v6}, old: spec(require, families{v4, v6}, ips{"10.0.0.1", "fd00::1"}),
			s: spec(require, families{v4, v6}, ips{"10.0.0.1"}), err: "must be 'SingleStack' to release the secondary cluster IP"},
		{rule: "a family goes only with the policy", configured: families{v4, v6}, old: spec(prefer, families{v4, v6}, ips{"10.0.0.1", "fd00::1"}),
			s: spec(prefer, families{v4}, ips{"10.0.0.1", "fd00::1"}), err: "must be 'SingleStack' to release the secondary IP family"},
		{rule: "a preference is not fulfilled later by itself", configured: families{v4, v6}, old: spec(prefer, families{v4}, ips{"10.0.0.1"}),
			s: spec(prefer, families{v4}, ips{"10.0.0.1"}), policy: prefer, families: families{v4}, ips: ips{"10.0.0.1"}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			if errs := validateService(test.s); len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			errs := completeFamilies(test.s, test.old, test.configured)
			if test.err != "" {
				if len(errs) == 0 || !strings.Contains(errs.ToAggregate().Error(), test.err) {
					t.Errorf("errors are %v, want %q", errs, test.err)
				}
				return
			}
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			if got := *test.s.Spec.IPFamilyPolicy; got != test.policy {
				t.Errorf("policy is %s, want %s", got, test.policy)
			}
			if got := test.s.Spec.IPFamilies; !slices.Equal(got, test.families) {
				t.Errorf("families are %v, want %v", got, test.families)
			}
			if got := test.s.Spec.ClusterIPs; !slices.Equal(got, test.ips) {
				t.Errorf("addresses are %v, want %v", got, test.ips)
			}
		})
	}
}
