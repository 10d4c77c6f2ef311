package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode"

	"svc.dev/svc/apiserver/release"
)

// patience is how long a step may take before the user is told that it goes
// on, and the time between two such lines.
const patience = 2 * time.Second

// report is how long each part took to start.
type report struct {
	began    time.Time
	progress io.Writer
	parts    []part
	took     time.Duration
}

type part struct {
	name, where string
	took        time.Duration
}

func (r *report) begin(progress io.Writer) {
	r.began, r.progress = time.Now(), progress
}

func (r *report) end() {
	r.took = time.Since(r.began)
}

// time runs the start of a part. While it takes long it writes progress lines.
func (r *report) time(name string, start func() (where string, err error)) error {
	began, where := time.Now(), ""
	err := telling(r.progress, "svc up: still starting: "+name, func() (err error) {
		where, err = start()
		return err
	})
	r.parts = append(r.parts, part{name, where, time.Since(began)})
	return err
}

// telling runs do, and writes a line now and then while that takes long.
func telling(out io.Writer, what string, do func() error) error {
	began := time.Now()
	finished := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		tick := time.NewTicker(patience)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprintf(out, "%s (%s)\n", what, time.Since(began).Round(time.Second))
			case <-finished:
				return
			}
		}
	})
	err := do()
	close(finished)
	telling.Wait()
	return err
}

// print writes what runs, and what to type next.
func (r *report) print(out io.Writer, u *instance) {
	fmt.Fprintf(out, "svc %s serves the API of Kubernetes %s\n\n", release.SVCVersion(), u.opts.Release)
	for _, p := range append(r.parts, part{name: "ready", took: r.took}) {
		fmt.Fprintln(out, strings.TrimRight(fmt.Sprintf("  %-21s %6d ms  %s", p.name, p.took.Milliseconds(), p.where), " "))
	}
	fmt.Fprintf(out, `
Type next, in another terminal:

  export KUBECONFIG=%s
  %[2]s kubectl get namespaces
  %[2]s kubectl create configmap greeting --from-literal=hello=world
  %[2]s kubectl get configmap greeting -o yaml

Ctrl-C stops it. What was written is kept in %[3]s.
`, shellWord(connectionFile(u.dataDir)), shellWord(u.program), u.dataDir)
	if u.isNode() {
		fmt.Fprintf(out, "Pods go on without it; '%s node reset%s' ends them.\n", shellWord(u.program), u.dataDirArgument())
	}
}

// shellWord quotes s if a shell would not take it as one word.
func shellWord(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-+:@%=,", r)
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
