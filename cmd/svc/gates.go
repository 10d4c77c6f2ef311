package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"

	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/controllers"
	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/devicetaints"
	"svc.dev/svc/controllers/legacytokencleaner"
)

// actsOnControllers reports whether a gate decides about a controller.
func actsOnControllers(name string) bool { return slices.Contains(controllers.Gates(), name) }

// included reports whether "*" of --controllers enables a controller.
func included(c controller.Controller) bool {
	switch {
	case c.Gate == "":
		return controllers.Included(c)
	case c.OnDemand:
		return utilfeature.DefaultFeatureGate.Enabled(featuregate.Feature(c.Gate))
	}
	return !gates.SwitchedOff(utilfeature.DefaultFeatureGate, c.Gate)
}

// includedAt is included at an API server of a release: kube-controller-manager runs the
// cleaner of service account tokens unless told otherwise since 1.29.
func includedAt(r release.Release) func(controller.Controller) bool {
	return func(c controller.Controller) bool {
		if c.Name == legacytokencleaner.Name && !r.Before(release.Release{Major: 1, Minor: 29}) {
			return !gates.SwitchedOff(utilfeature.DefaultFeatureGate, c.Gate)
		}
		return included(c)
	}
}

// gate returns the value of a gate, and whether the user has set it.
func gate(name string) (on, set bool) { return gates.Value(utilfeature.DefaultFeatureGate, name) }

// gateAt is gate at an API server of a release: before 1.35, DeviceTaintRules belong to the
// gate DRADeviceTaints.
func gateAt(r release.Release) func(name string) (on, set bool) {
	return func(name string) (on, set bool) {
		if name == devicetaints.RulesGate && r.Before(release.Release{Major: 1, Minor: 35}) {
			name = devicetaints.Gate
		}
		return gate(name)
	}
}

// warnGates names the feature gates that the user has set and that have no effect in
// this program.
func warnGates(cmd *cobra.Command, acts func(name string) bool) {
	if idle := gates.WithoutEffect(utilfeature.DefaultFeatureGate, acts); len(idle) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: --feature-gates: without effect here: %s\n", cmd.CommandPath(), strings.Join(idle, ", "))
	}
}
