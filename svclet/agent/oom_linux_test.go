package agent

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

func TestAProcessKilledForLackOfMemoryIsAnEventOfTheNode(t *testing.T) {
	// A pipe with packets keeps the records apart, as the kernel's log does.
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_DIRECT|unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	read, write := os.NewFile(uintptr(ends[0]), "read"), os.NewFile(uintptr(ends[1]), "write")
	defer write.Close()
	events := make(chan string)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		reportSystemOOM(func() (*os.File, error) { return read, nil }, func(kind, reason, message string) { events <- kind + " " + reason + " " + message })(ctx)
	}()
	defer func() { cancel(); <-ended }()
	for _, record := range []string{"4,1,1,-;a invoked oom-killer: gfp_mask=0x0", "3,2,2,-;Out of memory: Killed process 12 (a) total-vm:1kB"} {
		if _, err := write.WriteString(record); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := <-events, "Warning SystemOOM System OOM encountered, victim process: a, pid: 12"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAKernelsLogThatCannotBeReadIsOneLine(t *testing.T) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	reportSystemOOM(func() (*os.File, error) { return nil, errors.New("operation not permitted") }, func(_, _, message string) { t.Errorf("event %q", message) })(klog.NewContext(t.Context(), logger))
	logged := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
	if strings.Count(logged, "\n") != 1 || !strings.Contains(logged, "Failed to open the kernel's log") || !strings.Contains(logged, "operation not permitted") {
		t.Errorf("logged %q", logged)
	}
}
