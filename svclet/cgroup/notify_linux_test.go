package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTheKernelNotifiesOfMemoryUsage(t *testing.T) {
	points, err := mountPoints()
	if err != nil || points["memory"] == "" || os.Getuid() != 0 {
		t.Skip("needs root and cgroup v1")
	}
	dir, err := os.MkdirTemp(points["memory"], "svclet-test")
	if err != nil {
		t.Skipf("cgroups cannot be made here: %v", err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	crossed := make(chan struct{}, 100)
	stop, err := watchMemory(dir, 8<<20, func() { crossed <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	// tail keeps a line that does not end in memory.
	command := exec.CommandContext(t.Context(), "sh", "-c", fmt.Sprintf("echo $$ > %s && head -c 33554432 /dev/zero | tail", filepath.Join(dir, "cgroup.procs")))
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %.200s", err, out)
	}
	select {
	case <-crossed:
	case <-time.After(30 * time.Second):
		t.Error("no notification within 30s")
	}
	if _, err := watchMemory(filepath.Join(dir, "missing"), 1, func() {}); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("a cgroup that does not exist: %v", err)
	}
}
