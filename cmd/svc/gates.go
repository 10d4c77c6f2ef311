package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"

	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/controllers"
	"svc.dev/svc/controllers/controller"
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

// warnGates names the feature gates that the user has set and that have no effect in
// this program.
func warnGates(cmd *cobra.Command, acts func(name string) bool) {
	if idle := gates.WithoutEffect(utilfeature.DefaultFeatureGate, acts); len(idle) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: --feature-gates: without effect here: %s\n", cmd.CommandPath(), strings.Join(idle, ", "))
	}
}
