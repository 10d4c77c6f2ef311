package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"svc.dev/svc/svclet/config"
)

// svcletCommand runs a command line, as a shell would.
func svcletCommand(args ...string) (code int, out, errOut string) {
	var stdout, stderr bytes.Buffer
	code = run(args, func(string) string { return "" }, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

func TestWhatSvcletAnswers(t *testing.T) {
	for _, test := range []struct {
		args        []string
		code        int
		out, errOut string // what they begin with
	}{
		{args: []string{"--help"}, out: "svclet is the node agent"},
		{args: []string{"-h"}, out: "svclet is the node agent"},
		{args: []string{"--version"}, out: "svclet " + config.Release + "\n"},
		{args: []string{"--version=true"}, out: "svclet " + config.Release + "\n"},
		{args: []string{"--version=raw"}, out: "version.Info{Major:\"1\", Minor:\"36\""},
		{args: []string{"--version=v1"}, code: 1, errOut: "svclet: --version: \"v1\" is not true, raw or the release to report, as v1.36.0\n"},
		{args: []string{"--max-pods=-1"}, code: 1, errOut: "svclet: --max-pods (maxPods) is -1: must be 0 or more\n"},
		{args: []string{"--bogus"}, code: 1, errOut: "svclet: unknown flag --bogus; svclet --help lists them\n"},
		{args: []string{"--bogus", "--max-pods=-1"}, code: 1, errOut: "svclet: unknown flag --bogus; svclet --help lists them\nsvclet: --max-pods (maxPods) is -1: must be 0 or more\n"},
		{args: []string{"jion", "https://h:6443"}, code: 1, errOut: "svclet: unknown command \"jion\": did you mean \"join\"?; see 'svclet --help'\n"},
		{args: []string{"start"}, code: 1, errOut: "svclet: unknown command \"start\"; see 'svclet --help'\n"},
		{args: []string{"reset", "all"}, code: 1, errOut: "svclet reset: unexpected argument \"all\": only flags are taken\n"},
		{args: []string{"--runonce", "--enable-server", "--pod-manifest-path=/x"}, code: 1, errOut: "svclet: --runonce (runOnce) excludes enableServer"},
		{code: 1, errOut: "svclet: there is no source of pods: give --svcconfig, --pod-manifest-path (staticPodPath) or --manifest-url (staticPodURL)\n"},
		{args: []string{"--logging-format=json", "--feature-gates=LoggingBetaOptions=false"}, code: 1,
			errOut: "svclet: --logging-format (logging.format): log format json is disabled, see LoggingBetaOptions feature\n"},
		{args: []string{"--logging-format=json", "--vmodule=a=1"}, code: 1, errOut: "svclet: --vmodule (logging.vmodule): only supported for text log format\n"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			code, out, errOut := svcletCommand(test.args...)
			if code != test.code || !strings.HasPrefix(out, test.out) || !strings.HasPrefix(errOut, test.errOut) {
				t.Errorf("exits with %d and prints %.200q and %q, want %d, %q and %q", code, out, errOut, test.code, test.out, test.errOut)
			}
			if (test.out == "") != (out == "") || (test.errOut == "") != (errOut == "") {
				t.Errorf("prints %.200q and %q", out, errOut)
			}
		})
	}
}

func TestASecondSignalEndsACommand(t *testing.T) {
	const child = "SVCLET_TEST_CHILD"
	if os.Getenv(child) != "" {
		runCommand(&cobra.Command{RunE: func(*cobra.Command, []string) error {
			for { // until one ends this process
				if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
					return err
				}
			}
		}}, nil, io.Discard, io.Discard)
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.CombinedOutput()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %v: %s", err, out)
	}
}

func TestAVersionThatIsGivenIsReported(t *testing.T) {
	for _, version := range []string{"v1.28.3", "v1.36.0-svc.1+build"} {
		if reported, answered, err := reportVersion(version, nil); reported != version || answered || err != nil {
			t.Errorf("%s: %q, %t, %v", version, reported, answered, err)
		}
	}
}

func TestABadConnectionFileIsNamed(t *testing.T) {
	path := t.TempDir() + "/svcconfig"
	if err := os.WriteFile(path, []byte("apiVersion: v1\nkind: Config\nclusters: 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, errOut := svcletCommand("--svcconfig=" + path)
	if code != 1 || !strings.HasPrefix(errOut, "svclet: --svcconfig: "+path+": ") || strings.Count(errOut, "\n") != 1 {
		t.Errorf("exits with %d: %q", code, errOut)
	}
}
