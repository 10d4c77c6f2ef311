// Command svc is a cluster control plane that speaks the Kubernetes API.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := setFeatures(); err != nil {
		fmt.Fprintf(os.Stderr, "svc: feature gates: %v\n", err)
		os.Exit(1)
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}
