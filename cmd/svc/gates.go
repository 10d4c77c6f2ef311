package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/controllers"
	"svc.dev/svc/controllers/legacytokencleaner"
	"svc.dev/svc/controllers/servicecidr"
)

// actsOnControllers reports whether a gate enables a controller.
func actsOnControllers(name string) bool {
	return name == legacytokencleaner.Gate || name == servicecidr.Gate
}

// enableGated adds the controllers of enabled gates to those that run, unless --controllers
// lists single ones or excludes them, and excludes those of gates that are switched off.
func enableGated(o *controllers.Options) {
	listed := func(name string) bool { return slices.Contains(o.Controllers, name) }
	if utilfeature.DefaultFeatureGate.Enabled(legacytokencleaner.Gate) && listed("*") && !listed("-"+legacytokencleaner.Name) {
		o.Controllers = append(o.Controllers, legacytokencleaner.Name)
	}
	if gates.SwitchedOff(utilfeature.DefaultFeatureGate, servicecidr.Gate) && listed("*") && !listed(servicecidr.Name) {
		o.Controllers = append(o.Controllers, "-"+servicecidr.Name)
	}
}

// warnGates names the feature gates that the user has set and that have no effect in
// this program.
func warnGates(cmd *cobra.Command, acts func(name string) bool) {
	if idle := gates.WithoutEffect(utilfeature.DefaultFeatureGate, acts); len(idle) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: --feature-gates: without effect here: %s\n", cmd.CommandPath(), strings.Join(idle, ", "))
	}
}
