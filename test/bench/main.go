// Bench compares svc with kube-apiserver and etcd on this machine, as
// docs/benchmarks.md describes.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// options are the flags.
type options struct {
	rounds                               int
	quick, keep                          bool
	only                                 *regexp.Regexp
	dir, json, plot, profiles            string
	svc, kubeAPIServer, etcd             string
	kubeControllerManager, kubeScheduler string
	svclet, kubelet                      string
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	o, err := parseFlags(os.Args[1:])
	if err == nil {
		err = run(ctx, o, os.Stdout, os.Stderr)
	}
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parseFlags(args []string) (options, error) {
	var o options
	var only string
	var names []string
	for _, c := range contests() {
		for _, m := range c.measures {
			names = append(names, m.name)
		}
	}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.IntVar(&o.rounds, "rounds", 3, "how often each system is measured, in turn (default with --quick: 1)")
	fs.BoolVar(&o.quick, "quick", false, "measure little, in about three minutes, to see that everything works")
	fs.StringVar(&only, "only", "", "measures to take, separated by commas or as a regular expression, of: "+strings.Join(names, ", "))
	fs.StringVar(&o.dir, "dir", "bin/bench-data", "directory for data and logs, on a real disk; data is removed after each round")
	fs.BoolVar(&o.keep, "keep", false, "keep the data")
	fs.StringVar(&o.json, "json", "", "file to write the report to, as JSON")
	fs.StringVar(&o.plot, "plot", "", "file to write the figures of growth to, as a picture (SVG)")
	fs.StringVar(&o.profiles, "profile", "", "directory to write profiles of the first round to; taking them costs time, so compare no figures of such a run")
	fs.StringVar(&o.svc, "svc", "bin/svc", "the svc binary; empty to measure kube-apiserver alone")
	fs.StringVar(&o.kubeAPIServer, "kube-apiserver", "bin/kube-apiserver", "the kube-apiserver binary; empty to measure svc alone")
	fs.StringVar(&o.kubeControllerManager, "kube-controller-manager", "bin/kube-controller-manager", "the kube-controller-manager binary; empty to measure svc's controllers alone")
	fs.StringVar(&o.kubeScheduler, "kube-scheduler", "bin/kube-scheduler", "the kube-scheduler binary")
	fs.StringVar(&o.etcd, "etcd", "bin/etcd", "the etcd binary for kube-apiserver")
	fs.StringVar(&o.svclet, "svclet", "bin/svclet", "the svclet binary; empty to measure kubelet alone")
	fs.StringVar(&o.kubelet, "kubelet", "bin/kubelet", "the kubelet binary; empty to measure svclet alone")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: bench takes flags only", fs.Arg(0))
	}
	if o.quick && !isSet(fs, "rounds") {
		o.rounds = 1
	}
	if o.rounds < 1 {
		return o, fmt.Errorf("--rounds=%d: at least one is needed", o.rounds)
	}
	var err error
	if o.only, err = regexp.Compile("^(" + strings.ReplaceAll(cmp.Or(only, ".*"), ",", "|") + ")$"); err != nil {
		return o, fmt.Errorf("--only: %w", err)
	}
	if o.plot != "" && !o.only.MatchString("growth") {
		return o, fmt.Errorf("--plot shows the figures of growth, which --only=%s leaves out", only)
	}
	return o, nil
}

func isSet(fs *flag.FlagSet, name string) (set bool) {
	fs.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

// run measures the systems in turn and writes the report.
func run(ctx context.Context, o options, stdout, stderr io.Writer) error {
	// Logs of libraries about restarted watches are not part of the figures.
	klog.SetLogger(logr.Discard())
	logf.SetLogger(logr.Discard())
	// The client shares the CPUs with the servers, so it trades memory for CPU time.
	debug.SetGCPercent(400)
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	selected, err := selectMeasures(o)
	if err != nil {
		return err
	}
	programs := filepath.Join(dir, "bin")
	if err := o.install(programs); err != nil {
		return err
	}
	rep := report{dir: dir, Date: time.Now(), Rounds: o.rounds, Quick: o.quick, Sizes: fullSizes(), Commands: map[string][]string{}}
	if o.quick {
		rep.Sizes = quickSizes()
	}
	if rep.Machine, err = inspect(dir); err != nil {
		return err
	}
	figures := newLedger()
	var failures []error
	for _, c := range selected {
		systems, err := c.systems(o)
		if err != nil {
			return err
		}
		failures = append(failures, c.take(ctx, o, systems, &rep, figures, stderr)...)
	}
	rep.Results = figures.results()
	return errors.Join(append(failures, write(rep, o, stdout), os.RemoveAll(programs))...)
}

// selectMeasures returns the contests with the measures that --only matches.
func selectMeasures(o options) ([]contest, error) {
	var selected []contest
	for _, c := range contests() {
		c.measures = slices.DeleteFunc(c.measures, func(m measure) bool { return !o.only.MatchString(m.name) })
		if len(c.measures) > 0 {
			selected = append(selected, c)
		}
	}
	if len(selected) == 0 {
		return nil, fmt.Errorf("--only: no measure matches %s", o.only)
	}
	return selected, nil
}

// take takes the measures of all rounds and returns the failures.
func (c contest) take(ctx context.Context, o options, systems []system, rep *report, figures *ledger, stderr io.Writer) (failures []error) {
	dir := rep.dir
	for round := range o.rounds {
		for i := range systems {
			// The order changes with each round, so that neither is always
			// measured on a machine that the other has just warmed.
			s := systems[(i+round)%len(systems)]
			t := &trial{
				system: s, sizes: rep.Sizes,
				dir:    filepath.Join(dir, fmt.Sprintf("%s%d-%s", c.name, round+1, s.Name())),
				record: func(r row, v float64) { figures.add(s.Name(), r, v) },
				log:    func(format string, args ...any) { fmt.Fprintf(stderr, format+"\n", args...) },
			}
			if o.profiles != "" && round == 0 {
				t.profiles = o.profiles
			}
			if err := runTrial(ctx, t, c.measures, o.keep); err != nil {
				failures = append(failures, fmt.Errorf("%s, round %d, %s: %w", c.name, round+1, s.Name(), err))
			}
			if round == 0 {
				rep.Commands[s.Name()] = append(rep.Commands[s.Name()], t.commands...)
			}
		}
	}
	return failures
}

// runTrial runs a trial on an empty directory and removes it afterwards.
func runTrial(ctx context.Context, t *trial, selected []measure, keep bool) error {
	t.log("%s", filepath.Base(t.dir))
	if err := os.RemoveAll(t.dir); err != nil {
		return err
	}
	err := t.run(ctx, selected)
	if s, ok := t.system.(interface{ Clean() error }); ok {
		err = errors.Join(err, s.Clean())
	}
	if err != nil {
		return err
	}
	if keep {
		return nil
	}
	return os.RemoveAll(t.dir)
}

// write prints the report and writes its files.
func write(rep report, o options, stdout io.Writer) error {
	return errors.Join(rep.writeText(stdout), writeFile(o.json, rep.writeJSON), writeFile(o.plot, rep.writePlot))
}

// writeFile writes a file, unless its name is empty.
func writeFile(name string, content func(io.Writer) error) error {
	if name == "" {
		return nil
	}
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(content(out), out.Close())
}
