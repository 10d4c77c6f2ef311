// Command kubectl is the kubectl of the module file with which it is built:
// hack/tools/kubectl-1.20/go.mod, say (hack/peers.sh).
package main

import (
	"os"

	"k8s.io/kubectl/pkg/cmd"
)

func main() {
	if err := cmd.NewDefaultKubectlCommand().Execute(); err != nil {
		os.Exit(1)
	}
}
