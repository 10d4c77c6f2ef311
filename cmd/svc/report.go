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
	release release.Release
	program string // how the user calls svc
}

// print writes what runs, how long each component took to start, and what to
// type next.
func (r report) print(out io.Writer) {
	fmt.Fprintf(out, "svc %s serves the API of Kubernetes %s\n\n", release.SVCVersion(), r.release)
	started := append(r.Components, component.Started{Name: "ready", Took: r.Took})
	width := len("keys and certificates")
	for _, c := range started {
		width = max(width, len(c.Name))
	}
	for _, c := range started {
		fmt.Fprintln(out, strings.TrimRight(fmt.Sprintf("  %-*s %6d ms  %s", width, c.Name, c.Took.Milliseconds(), c.Description), " "))
	}
	fmt.Fprintf(out, `
Type next, in another terminal:

  export KUBECONFIG=%s
  %[2]s kubectl get namespaces
  %[2]s kubectl create configmap greeting --from-literal=hello=world
  %[2]s kubectl get configmap greeting -o yaml

`, shellWord(r.dir.AdminFile()), shellWord(r.program))
	if r.Node {
		fmt.Fprintf(out, `To reach a service:
  %s kubectl port-forward service/NAME 8080:PORT    # then http://127.0.0.1:8080
`, shellWord(r.program))
		if r.ServiceProxy {
			for _, route := range r.MissingRoutes {
				fmt.Fprintf(out, "  %-49s  # first: this machine has no default route\n", "ip route add "+route)
			}
			fmt.Fprintln(out, "  curl http://CLUSTER-IP:PORT                        # on this machine; 'get services' prints it")
		}
		fmt.Fprintln(out)
	}
	if kinds := notActedOn(r.release); len(kinds) > 0 {
		fmt.Fprintf(out, "Stored, but nothing acts on it: %s, until you install a controller for it.\n", enumerate(kinds))
	}
	fmt.Fprintf(out, "Ctrl-C stops it. What was written is kept in %s.\n", r.dir)
	if r.Node {
		fmt.Fprintf(out, "Pods go on without it; '%s node reset%s' ends them.\n", shellWord(r.program), r.dataDirArgument())
	}
}

// notActedOn returns the kinds that a release serves without a controller, admission
// plugin or node component of svc that acts on them (docs/not-yet.md).
func notActedOn(r release.Release) []string {
	var kinds []string
	for _, u := range unattended() {
		if !r.Before(u.since) {
			kinds = append(kinds, u.kinds...)
		}
	}
	return kinds
}

// unattendedKinds are kinds that are stable since a release and that nothing acts on: a
// row of docs/not-yet.md.
type unattendedKinds struct {
	since release.Release
	kinds []string
}

func unattended() []unattendedKinds {
	return []unattendedKinds{
		{release.Release{Major: 1, Minor: 19}, []string{"Ingress", "IngressClass"}},
	}
}

// enumerate returns words as in a sentence: a, b and c.
func enumerate(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
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
