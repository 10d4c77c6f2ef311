package agent

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"svc.dev/svc/svclet/cgroup"
	"svc.dev/svc/svclet/oom"
)

func TestAProcessKilledForLackOfMemoryIsAnEventOfTheNodeAndCounts(t *testing.T) {
	// A pipe with packets keeps the records apart, as the kernel's log does.
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_DIRECT|unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	read, write := os.NewFile(uintptr(ends[0]), "read"), os.NewFile(uintptr(ends[1]), "write")
	defer write.Close()
	events := make(chan string)
	counter := oom.NewCounter(func() []oom.Container {
		return []oom.Container{{Pod: "u-1", Namespace: "ns", PodName: "web", Name: "app", ID: "c1"}}
	})
	reports := oomReports{event: func(kind, reason, message string) { events <- kind + " " + reason + " " + message }, counter: counter, driver: cgroup.Systemd}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		reports.watch(func() (*os.File, error) { return read, nil })(ctx)
	}()
	defer func() { cancel(); <-ended }()
	const group = "/kubepods.slice/kubepods-podu_1.slice/cri-containerd-c1.scope"
	for _, record := range []string{
		"4,1,1,-;b invoked oom-killer: gfp_mask=0x0", "6,1,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=" + group + ",task_memcg=" + group + ",task=b,pid=11,uid=0",
		"4,1,1,-;a invoked oom-killer: gfp_mask=0x0", "3,2,2,-;Out of memory: Killed process 12 (a) total-vm:1kB",
	} {
		if _, err := write.WriteString(record); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := <-events, "Warning SystemOOM System OOM encountered, victim process: a, pid: 12"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if n := testutil.ToFloat64(counter); n != 1 {
		t.Errorf("the container has %v", n)
	}
}

func TestAKernelsLogThatCannotBeReadIsOneLine(t *testing.T) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	counter := oom.NewCounter(func() []oom.Container { return []oom.Container{{Pod: "u", Name: "app", ID: "c1"}} })
	oomReports{counter: counter}.watch(func() (*os.File, error) { return nil, errors.New("operation not permitted") })(klog.NewContext(t.Context(), logger))
	logged := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
	if strings.Count(logged, "\n") != 1 || !strings.Contains(logged, "Failed to open the kernel's log") || !strings.Contains(logged, "operation not permitted") {
		t.Errorf("logged %q", logged)
	}
	if n := testutil.CollectAndCount(counter); n != 0 {
		t.Errorf("%d counts of what is not known", n)
	}
}
