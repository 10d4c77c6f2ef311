package main

import (
	"fmt"
	"os"
	"slices"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/controllers"
	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/devicetaints"
)

// TestMain registers the feature gates, as main does.
func TestMain(m *testing.M) {
	if err := gates.Set(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestGatesDecideAboutControllersThatAreNotNamed(t *testing.T) {
	const cleaner, ranges, pools = "legacy-service-account-token-cleaner", "servicecidr", "resourcepoolstatusrequest"
	for _, tc := range []struct {
		minor       int
		gate        string
		on          bool
		controllers []string
		controller  string
		want        bool
	}{
		{28, "", false, []string{"*"}, cleaner, false},
		{29, "", false, []string{"*"}, cleaner, true},
		{29, "LegacyServiceAccountTokenCleanUp", false, []string{"*"}, cleaner, false},
		{37, "", false, []string{"*"}, cleaner, true},
		{37, "", false, []string{"*", "-legacy-service-account-token-cleaner"}, cleaner, false},
		{28, "", false, []string{"*"}, ranges, true},
		{28, "LegacyServiceAccountTokenCleanUp", true, []string{"*"}, cleaner, true},
		{28, "LegacyServiceAccountTokenCleanUp", true, []string{"*", "-legacy-serviceaccount-token-cleaner-controller"}, cleaner, false},
		{28, "LegacyServiceAccountTokenCleanUp", true, []string{"job"}, cleaner, false},
		{28, "MultiCIDRServiceAllocator", false, []string{"*"}, ranges, false},
		{28, "MultiCIDRServiceAllocator", false, []string{"*", "service-cidr-controller"}, ranges, true},
		{28, "MultiCIDRServiceAllocator", true, []string{"*", "-service-cidr-controller"}, ranges, false},
		{37, "", false, []string{"*"}, pools, false},
		{37, "DRAResourcePoolStatus", true, []string{"*"}, pools, true},
		{37, "", false, []string{"*", "resourcepoolstatusrequest-controller"}, pools, true},
	} {
		t.Run(fmt.Sprintf("1.%d %s=%t %v", tc.minor, tc.gate, tc.on, tc.controllers), func(t *testing.T) {
			if tc.gate != "" {
				featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, featuregate.Feature(tc.gate), tc.on)
			}
			picked, err := controllers.Pick(controllers.All(), tc.controllers, false, includedAt(release.Release{Major: 1, Minor: tc.minor}))
			if err != nil {
				t.Fatal(err)
			}
			if got := slices.ContainsFunc(picked, func(c controller.Controller) bool { return c.Name == tc.controller }); got != tc.want {
				t.Errorf("%s runs: %t", tc.controller, got)
			}
		})
	}
}

func TestTheGateOfDeviceTaintRulesIsThatOfTheirRelease(t *testing.T) {
	for _, tc := range []struct {
		minor   int
		gate    string
		set, on bool
	}{
		{34, devicetaints.Gate, true, true},
		{34, "", false, false},
		{35, devicetaints.Gate, false, false},
		{35, devicetaints.RulesGate, true, true},
		{36, devicetaints.RulesGate, true, true},
	} {
		t.Run(fmt.Sprintf("1.%d %s", tc.minor, tc.gate), func(t *testing.T) {
			if tc.gate != "" {
				featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, featuregate.Feature(tc.gate), true)
			}
			if on, set := gateAt(release.Release{Major: 1, Minor: tc.minor})(devicetaints.RulesGate); on != tc.on || set != tc.set {
				t.Errorf("on %t, set %t", on, set)
			}
		})
	}
}
