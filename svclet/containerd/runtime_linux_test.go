package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// restarting returns a containerd that has exited and is being restarted by a
// program that never becomes ready, and the new process.
func restarting(t *testing.T) (*Runtime, int) {
	t.Helper()
	dir := t.TempDir()
	program, pidFile := filepath.Join(dir, "containerd"), filepath.Join(dir, "pid")
	script := fmt.Sprintf("#!/bin/sh\necho $$ > %[1]s.new\nmv %[1]s.new %[1]s\nexec sleep 1000\n", pidFile)
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	config := Config{Dir: dir, Programs: Programs{Containerd: program}}
	r := &Runtime{settings: settings{Config: config}, LogFile: config.logFile()}
	var err error
	if r.process, err = r.settings.start(); err != nil {
		t.Fatal(err)
	}
	first := readPID(t, pidFile)
	if err := os.Remove(pidFile); err != nil {
		t.Fatal(err)
	}
	ctx, letGo := context.WithCancel(t.Context())
	r.letGo = letGo
	r.kept.Go(func() { r.keep(ctx) })
	if err := unix.Kill(first, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	pid := readPID(t, pidFile)
	t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) }) // it may have ended
	return r, pid
}

// readPID waits for a file with a PID.
func readPID(t *testing.T, path string) int {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		content, err := os.ReadFile(path)
		if err == nil {
			pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
		select {
		case <-t.Context().Done():
			t.Fatal(err)
		case <-tick.C:
		}
	}
}

func TestARestartingContainerdOutlivesTheAgent(t *testing.T) {
	r, pid := restarting(t)
	r.Close()
	if r.process.pid != pid {
		t.Fatalf("the process %d is let go of, want %d", r.process.pid, pid)
	}
	select {
	case <-r.process.ended:
		t.Error("it has been stopped")
	default:
	}
	if err := unix.Kill(pid, 0); err != nil {
		t.Errorf("it has ended: %v", err)
	}
}

func TestStopStopsARestartingContainerd(t *testing.T) {
	r, pid := restarting(t)
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("it runs: %v", err)
	}
}
