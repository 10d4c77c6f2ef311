package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"svc.dev/svc/svclet/agent"
	"svc.dev/svc/svclet/config"
)

// settingsIn returns the settings of an svclet whose directories are in dir, and that makes
// no cgroups; more are further fields of its configuration.
func settingsIn(t *testing.T, dir, more string, args ...string) *config.Settings {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	content := "apiVersion: svclet.config.k8s.io/v1beta1\nkind: SvcletConfiguration\nfailSwapOn: false\nfailCgroupV1: false\n" +
		"podLogsDir: " + filepath.Join(dir, "logs") + "\n" + more
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := config.Load(append([]string{"--config=" + file, "--root-dir=" + filepath.Join(dir, "root")}, args...), func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const withoutCgroups = "cgroupsPerQOS: false\nenforceNodeAllocatable: [none]\n"

func TestAPortInUseIsReportedBeforeAnythingIsChanged(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run pods")
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := settingsIn(t, dir, withoutCgroups, "--address=127.0.0.1", "--port="+port)
	err = runAgent(t.Context(), s, agent.Config{Flags: s.Flags, Gates: s.Gates, Configuration: s.Configuration})
	if err == nil || !strings.HasSuffix(err.Error(), "choose other ports with --port, --read-only-port and --healthz-port") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(containerdDir(filepath.Join(dir, "root"))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of containerd has been made: %v", err)
	}
}
