package containerd

import (
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAProcessIsWatchedUntilItExits(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := watch(cmd.Process.Pid, cmd.Wait)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.ended:
		t.Error("it runs, and is said to have ended")
	default:
	}
	if err := p.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-p.ended
	if err := p.stop(t.Context()); err != nil {
		t.Errorf("stopped again: %v", err)
	}
	if _, err := watch(cmd.Process.Pid, nil); err == nil {
		t.Error("its remains are still there")
	}
}

func TestAForgottenProcessKeepsRunning(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := watch(cmd.Process.Pid, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.forget()
	if err := cmd.Process.Signal(unix.Signal(0)); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
}

func TestTheProcessListeningOnASocketIsFound(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	if p, err := findProcess(socket); p != nil || err != nil {
		t.Errorf("at no socket: %v, %v", p, err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	p, err := findProcess(socket)
	if err != nil || p.pid != unix.Getpid() {
		t.Errorf("found %+v, %v", p, err)
	}
	p.forget()
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	listener.Close()
	if p, err := findProcess(socket); p != nil || err != nil {
		t.Errorf("at the socket of a process that has exited: %v, %v", p, err)
	}
}

// waits is set for a test process that stands for another program: it waits for
// the end of its standard input.
const waits = "SVC_TEST_WAITS"

func TestMain(m *testing.M) {
	if os.Getenv(waits) != "" {
		if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
			log.Fatal(err)
		}
		return
	}
	m.Run()
}

// standIn runs a process with the arguments of another program until the end of
// the test.
func standIn(t *testing.T, args ...string) (pid int) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{Path: program, Args: args, Env: append(os.Environ(), waits+"=1")}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait() // it may have been killed
	})
	return cmd.Process.Pid
}

func TestAContainerdIsFoundWithoutItsSocket(t *testing.T) {
	config, link := Config{Dir: t.TempDir()}, filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(config.Dir, link); err != nil {
		t.Fatal(err)
	}
	other := Config{Dir: t.TempDir()}
	standIn(t, "/usr/bin/containerd", "--config", other.configFile())
	standIn(t, "/usr/bin/containerd", "--config", config.configFile(), "config", "dump")
	standIn(t, "/usr/bin/editor", "--config", config.configFile())
	if p, _, err := config.find(); p != nil || err != nil {
		t.Fatalf("where none runs: %+v, %v", p, err)
	}
	// Its predecessor may have used another path to the directory.
	pid := standIn(t, "/usr/bin/containerd", "--config", Config{Dir: link}.configFile())
	p, heard, err := config.find()
	if err != nil || p == nil || p.pid != pid || heard {
		t.Fatalf("found %+v, heard: %t, %v; want the process %d", p, heard, err, pid)
	}
	if err := p.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestTheAgentIsNotMistakenForContainerd(t *testing.T) {
	got := environment([]string{"HOME=/root", "PATH=/bin:/sbin", "NOTIFY_SOCKET=/run/systemd/notify", "LISTEN_FDS=1", "HTTPS_PROXY=p"},
		Programs{Containerd: "/opt/a/containerd", Runc: "/opt/b/runc", IPTables: "/opt/b/iptables"})
	if want := []string{"HOME=/root", "HTTPS_PROXY=p", "PATH=/opt/a:/opt/b:/bin:/sbin"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestPodUIDsAreReadFromCgroupNames(t *testing.T) {
	for name, want := range map[string]string{
		"podaf7a3b6e-7d5b-4c0f-9e53-1f5f5a3b0b7e":                          "af7a3b6e-7d5b-4c0f-9e53-1f5f5a3b0b7e",
		"kubepods-burstable-podaf7a3b6e_7d5b_4c0f_9e53_1f5f5a3b0b7e.slice": "af7a3b6e-7d5b-4c0f-9e53-1f5f5a3b0b7e",
		"kubepods-podaf7a3b6e_7d5b_4c0f_9e53_1f5f5a3b0b7e.slice":           "af7a3b6e-7d5b-4c0f-9e53-1f5f5a3b0b7e",
		"system.slice": "",
	} {
		if got := podOfCgroup(name); got != want {
			t.Errorf("%s: got %q", name, got)
		}
	}
}
