package gates

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/component-base/featuregate"

	"svc.dev/svc/internal/featuregates"
)

func TestEveryGateOfTheReleaseIsAccepted(t *testing.T) {
	for _, gate := range featuregates.All() {
		set, err := featuregates.New()
		if err != nil {
			t.Fatal(err)
		}
		name := strings.ReplaceAll(gate.Name, "Svclet", "Kubelet")
		if err := parse(set, name+"=true"); err != nil || !set.Enabled(featuregate.Feature(gate.Name)) {
			t.Errorf("%s: %v", name, err)
		}
		idle := WithoutEffect(set, Acts)
		if !Acts(gate.Name) && !slices.Equal(idle, []string{gate.Name}) || Acts(gate.Name) && len(idle) != 0 {
			t.Errorf("%s: without effect are %v", gate.Name, idle)
		}
	}
}

func TestBadGatesAreRefused(t *testing.T) {
	for value, want := range map[string]string{
		"NodeSwop=true":    "NodeSwop is not a known feature gate; did you mean NodeSwap?",
		"NodeSwap":         "NodeSwap has no value; must be NodeSwap=true or NodeSwap=false",
		"NodeSwap=maybe":   `NodeSwap is "maybe"; must be true or false`,
		"CPUManager=false": "cannot set feature gate CPUManager to false, feature is locked to true",
	} {
		set, err := featuregates.New()
		if err != nil {
			t.Fatal(err)
		}
		if err := parse(set, value); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v", value, err)
		}
	}
}

func parse(set featuregate.MutableFeatureGate, value string) error {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	AddFlag(flags, set, Acts)
	return flags.Parse([]string{"--feature-gates=" + value})
}
