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
	"svc.dev/svc/controllers"
	"svc.dev/svc/controllers/controller"
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
	const cleaner, ranges = "legacy-service-account-token-cleaner", "servicecidr"
	for _, tc := range []struct {
		gate        string
		on          bool
		controllers []string
		controller  string
		want        bool
	}{
		{"", false, []string{"*"}, cleaner, false},
		{"", false, []string{"*"}, ranges, true},
		{"LegacyServiceAccountTokenCleanUp", true, []string{"*"}, cleaner, true},
		{"LegacyServiceAccountTokenCleanUp", true, []string{"*", "-legacy-serviceaccount-token-cleaner-controller"}, cleaner, false},
		{"LegacyServiceAccountTokenCleanUp", true, []string{"job"}, cleaner, false},
		{"MultiCIDRServiceAllocator", false, []string{"*"}, ranges, false},
		{"MultiCIDRServiceAllocator", false, []string{"*", "service-cidr-controller"}, ranges, true},
		{"MultiCIDRServiceAllocator", true, []string{"*", "-service-cidr-controller"}, ranges, false},
	} {
		t.Run(fmt.Sprintf("%s=%t %v", tc.gate, tc.on, tc.controllers), func(t *testing.T) {
			if tc.gate != "" {
				featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, featuregate.Feature(tc.gate), tc.on)
			}
			picked, err := controllers.Pick(controllers.All(), tc.controllers, false, included)
			if err != nil {
				t.Fatal(err)
			}
			if got := slices.ContainsFunc(picked, func(c controller.Controller) bool { return c.Name == tc.controller }); got != tc.want {
				t.Errorf("%s runs: %t", tc.controller, got)
			}
		})
	}
}
