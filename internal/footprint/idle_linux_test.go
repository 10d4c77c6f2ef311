package footprint

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// slackOf returns the slack of a thread, or -1 if it has ended.
func slackOf(t *testing.T, id string) time.Duration {
	t.Helper()
	text, err := os.ReadFile("/proc/" + id + "/timerslack_ns")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return -1
	}
	if err != nil {
		t.Fatal(err)
	}
	slack, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(slack)
}

// CAP_SYS_NICE is needed for threads other than one's own.
func TestTheSlackOfAllThreadsIsSet(t *testing.T) {
	usual := usualSlack()
	err := setSlack(idleSlack)
	if errors.Is(err, unix.EPERM) && os.Geteuid() != 0 {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		if got := slackOf(t, thread.Name()); got != idleSlack && got != -1 {
			t.Errorf("thread %s: %s", thread.Name(), got)
		}
	}
	child := exec.Command("sleep", "60")
	if err := StartProcess(child); err != nil {
		t.Fatal(err)
	}
	if got := slackOf(t, strconv.Itoa(child.Process.Pid)); got != usual {
		t.Errorf("a process that is started has %s, want %s", got, usual)
	}
	if err := errors.Join(child.Process.Kill(), setSlack(usual)); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err == nil {
		t.Error("the child was not killed")
	}
}
