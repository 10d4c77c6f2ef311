// Command svc is a cluster control plane that speaks the Kubernetes API.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"svc.dev/svc/apiserver/gates"
)

func main() {
	if err := gates.Set(); err != nil {
		fmt.Fprintf(os.Stderr, "svc: feature gates: %v\n", err)
		os.Exit(1)
	}
	os.Exit(run(arguments(os.Args), os.Stdout, os.Stderr))
}

// arguments are those of the command line. A link to svc with the name of a
// program of Kubernetes stands for the command that takes its place, so that a
// directory of such programs can be made of links.
func arguments(line []string) []string {
	switch filepath.Base(line[0]) {
	case "kube-apiserver":
		return append([]string{"apiserver"}, line[1:]...)
	case "kubectl":
		return append([]string{"kubectl"}, line[1:]...)
	}
	return line[1:]
}
