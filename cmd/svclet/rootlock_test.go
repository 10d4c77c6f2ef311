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

func TestARootDirectoryIsOfOneAgent(t *testing.T) {
	dir := t.TempDir() + "/root"
	held, err := lockRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockRoot(dir); err == nil || !strings.HasPrefix(err.Error(), "--root-dir: "+dir+" is in use by another svclet") {
		t.Errorf("a second agent: %v", err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := lockRoot(dir)
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

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

func TestLogsAreOfOneAgentWhateverItsRootDirectory(t *testing.T) {
	dir := t.TempDir()
	s := settingsIn(t, dir, withoutCgroups)
	held, err := lockShared(s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockShared(s); err == nil || !strings.HasPrefix(err.Error(), "podLogsDir: "+filepath.Join(dir, "logs")+" is in use by another svclet") {
		t.Errorf("a second agent: %v", err)
	}
	held.Close()
	again, err := lockShared(s)
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	again.Close()
}

func TestACgroupIsOfOneAgent(t *testing.T) {
	first, second := settingsIn(t, t.TempDir(), ""), settingsIn(t, t.TempDir(), "")
	held, err := lockShared(first)
	if err != nil {
		t.Skip(err) // an svclet of this machine has the cgroup
	}
	defer held.Close()
	if len(held) != 2 {
		t.Fatalf("%d locks are held, want those of the logs and of the cgroup", len(held))
	}
	if _, err := lockShared(second); err == nil || !strings.HasPrefix(err.Error(), "--cgroup-root: ") {
		t.Errorf("a second agent: %v", err)
	}
}

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
