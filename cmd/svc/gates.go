package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"svc.dev/svc/apiserver/gates"
)

// actsOnNone is the answer of a program that no feature gate changes.
func actsOnNone(string) bool { return false }

// warnGates names the feature gates that the user has set and that have no effect in
// this program.
func warnGates(cmd *cobra.Command, acts func(name string) bool) {
	if idle := gates.WithoutEffect(utilfeature.DefaultFeatureGate, acts); len(idle) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: --feature-gates: without effect here: %s\n", cmd.CommandPath(), strings.Join(idle, ", "))
	}
}
