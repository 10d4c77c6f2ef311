package main

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/internal/cluster"
	"svc.dev/svc/internal/component"
	"svc.dev/svc/internal/datadir"
)

// report is what svc up prints when the cluster is ready.
type report struct {
	cluster.Report
	dir     datadir.Dir
	release string
	program string // how the user calls svc
}

// print writes what runs, how long each component took to start, and what to
// type next.
func (r report) print(out io.Writer) {
	fmt.Fprintf(out, "svc %s serves the API of Kubernetes %s\n\n", release.SVCVersion(), r.release)
	for _, c := range append(r.Components, component.Started{Name: "ready", Took: r.Took}) {
		fmt.Fprintln(out, strings.TrimRight(fmt.Sprintf("  %-21s %6d ms  %s", c.Name, c.Took.Milliseconds(), c.Description), " "))
	}
	fmt.Fprintf(out, `
Type next, in another terminal:

  export KUBECONFIG=%s
  %[2]s kubectl get namespaces
  %[2]s kubectl create configmap greeting --from-literal=hello=world
  %[2]s kubectl get configmap greeting -o yaml

Ctrl-C stops it. What was written is kept in %[3]s.
`, shellWord(r.dir.AdminFile()), shellWord(r.program), r.dir)
	if r.Node {
		fmt.Fprintf(out, "Pods go on without it; '%s node reset%s' ends them.\n", shellWord(r.program), r.dataDirArgument())
	}
}

// dataDirArgument returns the argument that names the data directory to a
// command, empty for the default.
func (r report) dataDirArgument() string {
	if r.dir == datadir.RootDefault {
		return ""
	}
	return " --data-dir=" + shellWord(string(r.dir))
}

// shellWord quotes s unless a shell reads it as one word without expansions.
func shellWord(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-+:@%=,", r)
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
