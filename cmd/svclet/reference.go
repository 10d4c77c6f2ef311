package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"svc.dev/svc/internal/reference"
)

// newReference writes docs/reference/svclet-commands.md, for make generate.
func newReference() *cobra.Command {
	return &cobra.Command{
		Use:    "reference",
		Short:  "Write the reference of the commands as Markdown",
		Args:   cobra.NoArgs,
		Hidden: true,
		Run: func(cmd *cobra.Command, _ []string) {
			out := cmd.OutOrStdout()
			fmt.Fprint(out, "# Commands of svclet\n\n<!-- Generated from the commands' declarations by make generate; do not edit. -->\n\n"+
				"The commands that svclet has besides the agent itself, whose flags are [its settings](svclet.md).\n")
			for _, c := range cmd.Root().Commands() {
				reference.Write(out, c)
			}
		},
	}
}
