package main

import (
	"github.com/spf13/cobra"

	"svc.dev/svc/internal/reference"
)

// newReference writes docs/reference/svclet-commands.md, for make generate.
func newReference() *cobra.Command {
	return reference.Command("Commands of svclet", "The commands that svclet has besides the agent itself, whose flags are [its settings](svclet.md).")
}
