// Package conformance runs Kubernetes' own conformance tests against svc up and its node,
// as make test-conformance does, and compares what fails with the list of what may.
package conformance

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"svc.dev/svc/test/launch"
)

var (
	focus  = flag.String("focus", "", "run only the tests whose names match this regular expression")
	labels = flag.String("labels", "Conformance", "run the tests of Kubernetes' suite that have these labels (a filter of Ginkgo)")
	procs  = flag.Int("procs", 4, "how many of the tests that allow it run at once")
	report = flag.String("report", "", "the directory for the JUnit reports (default: a temporary one)")
)

// release is that of the tests.
const release = "1.36"

// exception is a set of tests that fail.
type exception struct {
	// Tests is a regular expression that matches their names.
	Tests string `json:"tests"`
	// Why they fail.
	Why string `json:"why"`
}

func TestConformance(t *testing.T) {
	bin := os.Getenv("BIN")
	if bin == "" {
		t.Skip("BIN is not set to the directory of the programs: run make test-conformance")
	}
	if why := launch.WhyNoNode(); why != "" {
		t.Skip(why)
	}
	content, err := os.ReadFile("exceptions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var exceptions []exception
	if err := yaml.UnmarshalStrict(content, &exceptions); err != nil {
		t.Fatal(err)
	}
	dir, err := launch.TempDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // what is left of it is in the directory of temporary files
	// The tests ask the agent at this port.
	node, err := launch.UpNode(t.Context(), filepath.Join(dir, "data"), "--release="+release, "--node-port=10250")
	t.Cleanup(func() {
		if err := node.Remove(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := importImages(t.Context(), node, bin, dir); err != nil {
		t.Fatal(err)
	}
	s := suite{bin: bin, dir: dir, kubeconfig: node.Kubeconfig}
	if s.reports, err = filepath.Abs(cmp.Or(*report, t.TempDir())); err != nil {
		t.Fatal(err)
	}
	// A test copies kubectl into a pod, for which a link is not enough.
	if out, err := exec.CommandContext(t.Context(), "cp", filepath.Join(bin, "svc"), s.kubectl()).CombinedOutput(); err != nil {
		t.Fatalf("copy kubectl: %v: %s", err, out)
	}
	// The tests marked as serial disturb others, such as by taints of the node.
	results, err := s.run(t.Context(), "parallel", "!Serial", *procs)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := s.run(t.Context(), "serial", "Serial", 1)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(results, serial)
	if len(results) == 0 {
		t.Fatal("no test has these labels and matches the focus")
	}
	judge(t, results, exceptions)
}

// maxFailure is how many bytes of a failure are printed. The report has all of it.
const maxFailure = 600

// judge reports which tests failed that are no exceptions, and which exceptions passed. A
// result is the message of a failure, or "".
func judge(t *testing.T, results map[string]string, exceptions []exception) {
	var failed, expected int
	for name, failure := range results {
		i := slices.IndexFunc(exceptions, func(e exception) bool { return regexp.MustCompile(e.Tests).MatchString(name) })
		switch {
		case failure != "" && i < 0:
			failed++
			t.Errorf("%s: %s", name, failure[:min(len(failure), maxFailure)])
		case failure == "" && i >= 0:
			t.Errorf("%s passes: remove it from exceptions.yaml (%s)", name, exceptions[i].Why)
		case failure != "":
			expected++
		}
	}
	t.Logf("%d tests of Kubernetes %s: %d passed, %d failed, and %d as expected", len(results), release, len(results)-failed-expected, failed, expected)
}

// suite runs the program of the tests.
type suite struct{ bin, dir, kubeconfig, reports string }

// kubectl is the path of kubectl.
func (s suite) kubectl() string { return filepath.Join(s.dir, "kubectl") }

// run runs the tests of a part, procs at once, and returns the messages of their failures by
// their names, "" for those that passed. The reports are in a directory of this name.
func (s suite) run(ctx context.Context, name, part string, procs int) (map[string]string, error) {
	reports := filepath.Join(s.reports, name)
	if err := os.MkdirAll(reports, 0o755); err != nil {
		return nil, err
	}
	file := filepath.Join(reports, "junit.xml")
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) { // that of an earlier run
		return nil, err
	}
	args := []string{
		fmt.Sprintf("--procs=%d", procs), "--timeout=3h", "--no-color", "--junit-report=junit.xml", "--output-dir=" + reports,
		fmt.Sprintf("--label-filter=(%s) && %s", *labels, part), "--focus=" + *focus, "--silence-skips",
	}
	args = append(args, filepath.Join(s.bin, "conformance.test"), "--", "--kubeconfig="+s.kubeconfig, "--provider=skeleton", "--kubectl-path="+s.kubectl(),
		"--num-nodes=1", "--e2e-output-dir="+s.dir, "--repo-root=")
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "ginkgo"), args...)
	log, err := os.Create(filepath.Join(reports, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Dir = s.dir // in that of a module, it compares that module's version of Ginkgo
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = log, log, time.Minute
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var failed *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &failed) {
		return nil, err
	}
	return readReport(file)
}

// readReport reads a JUnit report.
func readReport(file string) (map[string]string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("the tests have not ended, see the log beside it: %w", err)
	}
	var read struct {
		Suites []struct {
			Cases []struct {
				Name    string    `xml:"name,attr"`
				Status  string    `xml:"status,attr"`
				Skipped *struct{} `xml:"skipped"`
				Failure *struct {
					Message string `xml:"message,attr"`
				} `xml:"failure"`
				Error *struct {
					Message string `xml:"message,attr"`
				} `xml:"error"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(content, &read); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	results := map[string]string{}
	for _, s := range read.Suites {
		for _, c := range s.Cases {
			if c.Skipped != nil || !strings.HasPrefix(c.Name, "[It] ") {
				continue
			}
			failure := ""
			switch {
			case c.Failure != nil:
				failure = c.Status + ": " + c.Failure.Message
			case c.Error != nil:
				failure = c.Status + ": " + c.Error.Message
			}
			results[strings.TrimPrefix(c.Name, "[It] ")] = failure
		}
	}
	return results, nil
}
