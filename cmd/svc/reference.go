package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"svc.dev/svc/internal/reference"
)

// newReference writes docs/reference/svc.md, for make generate.
func newReference() *cobra.Command {
	return &cobra.Command{
		Use:    "reference",
		Short:  "Write the reference of all commands and flags as Markdown",
		Args:   noArguments,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			fmt.Fprint(out, "# svc\n\n<!-- Generated from the commands' declarations by make generate; do not edit. -->\n\n"+
				"Every command and flag. Names of Kubernetes' flags that begin with `kubelet-` are accepted for those that begin with `svclet-`, and `--kubeconfig` for `--svcconfig`.\n")
			for _, c := range cmd.Root().Commands() {
				reference.Write(out, c)
			}
			return nil
		},
	}
}
