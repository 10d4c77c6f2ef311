package main

import (
	"github.com/spf13/cobra"

	"svc.dev/svc/internal/reference"
)

// newReference writes docs/reference/svc.md, for make generate.
func newReference() *cobra.Command {
	return reference.Command("svc", "Every command and flag. Names of Kubernetes' flags that begin with `kubelet-` are accepted for those that begin with `svclet-`, and `--kubeconfig` for `--svcconfig`.")
}
