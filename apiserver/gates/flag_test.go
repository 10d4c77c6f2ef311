package gates

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/component-base/metrics/legacyregistry"
	featuremetrics "k8s.io/component-base/metrics/prometheus/feature"
	"k8s.io/klog/v2"

	"svc.dev/svc/internal/featuregates"
	"svc.dev/svc/internal/releases"
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

func TestAGateIsSwitchedOffIfItHasBeenSetToFalse(t *testing.T) {
	for value, want := range map[string]bool{"": false, "NodeSwap=true": false, "NodeSwap=false": true} {
		set, err := featuregates.New()
		if err != nil {
			t.Fatal(err)
		}
		if err := parse(set, value); err != nil {
			t.Fatal(err)
		}
		if got := SwitchedOff(set, "NodeSwap"); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
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

func TestTheGatesOfAReleaseFollowTheValuesThatHaveBeenSet(t *testing.T) {
	for range 2 {
		for value, want := range map[string]bool{"": false, "NodeSwap=true": true, "NodeSwap=false": false} {
			set, err := featuregates.New()
			if err != nil {
				t.Fatal(err)
			}
			if err := parse(set, value); err != nil {
				t.Fatal(err)
			}
			at, err := At(featuregates.Documented, set)
			if err != nil {
				t.Fatal(err)
			}
			if got := at.Enabled("NodeSwap"); got != want {
				t.Errorf("%q: %v, want %v", value, got, want)
			}
		}
	}
}

func parse(set featuregate.MutableFeatureGate, value string) error {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	AddFlag(flags, set, Acts)
	return flags.Parse([]string{"--feature-gates=" + value})
}

func TestTheMetricHasTheGatesOfTheRelease(t *testing.T) {
	t.Cleanup(featuremetrics.ResetFeatureInfoMetric)
	if err := Set(); err != nil {
		t.Fatal(err)
	}
	if err := Record(t.Context(), 36, utilfeature.DefaultFeatureGate); err != nil {
		t.Fatal(err)
	}
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, family := range families {
		if family.GetName() != "kubernetes_feature_enabled" {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range m.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			got[labels["name"]] = fmt.Sprint(labels["stage"], " ", m.GetGauge().GetValue())
		}
	}
	for name, want := range map[string]string{
		"SidecarContainers": " 1", "MaxUnavailableStatefulSet": "BETA 0", "ClusterTrustBundle": "BETA 0", "SvcFastJSON": "BETA 1", "AllAlpha": "ALPHA 0",
		"WatchList": "BETA 1", "AllowUnsafeMalformedObjectDeletion": "ALPHA 0",
		"ProxyTerminatingEndpoints": "",
	} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
}

func TestTheGatesOfAReleaseAreMadeWithoutTheWarningsOfTheFlag(t *testing.T) {
	set, err := featuregates.New()
	if err != nil {
		t.Fatal(err)
	}
	if err := set.SetFromMap(map[string]bool{"ServerSideApply": true}); err != nil {
		t.Fatal(err)
	}
	var logged strings.Builder
	klog.SetLogger(funcr.New(func(_, args string) { logged.WriteString(args) }, funcr.Options{}))
	defer klog.ClearLogger()
	made, err := At(featuregates.Documented, set)
	if err != nil {
		t.Fatal(err)
	}
	if !made.Enabled("ServerSideApply") {
		t.Error("the gate is not set")
	}
	if logged.Len() > 0 {
		t.Errorf("it logs %s", &logged)
	}
}

// TestTheLibrariesHaveTheGatesOfTheRelease: of gates whose default has changed since, and which
// clients or operators see.
func TestTheLibrariesHaveTheGatesOfTheRelease(t *testing.T) {
	if err := Set(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := SetLibraries(28); err != nil {
			t.Error(err)
		}
	})
	for name, on := range map[featuregate.Feature]map[releases.Release]bool{
		// It was on in 1.32, and off in 1.33.
		"WatchList":                          {16: false, 28: false, 32: true, 33: false, 34: true, 37: true},
		"AllowUnsafeMalformedObjectDeletion": {16: false, 28: false, 32: false, 36: false, 37: true},
		// Version 1 was there before the gate.
		"KMSv1":                           {16: true, 27: true, 28: true, 29: false, 37: false},
		"AllowParsingUserUIDFromCertAuth": {28: false, 32: false, 33: true, 37: true},
		"CRDObservedGenerationTracking":   {28: false, 35: false, 36: true, 37: true},
		"ComponentStatusz":                {28: false, 35: false, 36: true, 37: true},
	} {
		if !slices.Contains(ofLibraries, string(name)) {
			t.Errorf("%s is no gate of the libraries", name)
		}
		for release, want := range on {
			if err := SetLibraries(release); err != nil {
				t.Fatal(err)
			}
			if got := utilfeature.DefaultFeatureGate.Enabled(name); got != want {
				t.Errorf("%s at %v: %v, want %v", name, release, got, want)
			}
		}
	}
}

func TestAGateOfTheLibrariesThatIsSetKeepsItsValue(t *testing.T) {
	if err := Set(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := SetLibraries(28); err != nil {
			t.Error(err)
		}
	})
	for name, value := range map[featuregate.Feature]bool{"KMSv1": true, "AllowUnsafeMalformedObjectDeletion": false} {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, name, value)
		if err := SetLibraries(37); err != nil || utilfeature.DefaultFeatureGate.Enabled(name) != value {
			t.Errorf("%s is not %v: %v", name, value, err)
		}
	}
}
