package pause

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/onsi/gomega"
)

// start runs this platform's program as the init process of a new PID namespace.
func start(t *testing.T) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can create PID namespaces")
	}
	for _, p := range programs() {
		if p.arch != runtime.GOARCH {
			continue
		}
		file := filepath.Join(t.TempDir(), "pause")
		if err := os.WriteFile(file, p.executable(), 0o700); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(file)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
		if err := cmd.Start(); errors.Is(err, syscall.EPERM) {
			t.Skip("this root user cannot create PID namespaces")
		} else if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // it may have exited already
			_ = cmd.Wait()
		})
		// Signals are handled once it waits for them.
		gomega.NewWithT(t).Eventually(func() string { return syscallOf(cmd) }).WithTimeout(time.Minute).Should(gomega.HavePrefix(waitCall()))
		return cmd
	}
	t.Skip("there is no program for " + runtime.GOARCH)
	return nil
}

// waitCall is how /proc/PID/syscall begins during rt_sigtimedwait.
func waitCall() string { return fmt.Sprint(syscall.SYS_RT_SIGTIMEDWAIT) + " " }

func syscallOf(cmd *exec.Cmd) string {
	content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", cmd.Process.Pid)) // empty while it runs
	return string(content)
}

func TestTheProgramExitsOnSIGTERMAndSIGINT(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		cmd := start(t)
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v", signal, err)
		}
	}
}

func TestTheProgramKeepsWaitingAfterSIGSTOPAndSIGCONT(t *testing.T) {
	g := gomega.NewWithT(t)
	cmd := start(t)
	for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
	}
	g.Eventually(func() string { return syscallOf(cmd) }).WithTimeout(time.Minute).Should(gomega.HavePrefix(waitCall()))
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestTheProgramReapsOrphans(t *testing.T) {
	g := gomega.NewWithT(t)
	cmd := start(t)
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		t.Skip("nsenter is not installed")
	}
	children := func() []string {
		content, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(content))
	}
	// The shell leaves three orphans behind, which wait for the end of their input.
	script := `for i in 1 2 3; do sh -c 'read line' <&3 & done 3<&0`
	orphans := exec.Command(nsenter, "--target", fmt.Sprint(cmd.Process.Pid), "--pid", "sh", "-c", script)
	hold, err := orphans.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := orphans.Start(); err != nil {
		t.Fatal(err)
	}
	g.Eventually(children).WithTimeout(time.Minute).Should(gomega.HaveLen(3))
	hold.Close()
	g.Eventually(children).WithTimeout(time.Minute).Should(gomega.BeEmpty())
	if err := orphans.Wait(); err != nil {
		t.Error(err)
	}
}
