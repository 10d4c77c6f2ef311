package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"
)

// crowd is a fake of the processes in the root cgroup, some of which cannot be
// moved.
type crowd struct {
	mu          sync.Mutex
	root, moved []int
	made        int
	makes       error
	refuses     map[int]error
	// forks are children that processes leave in the root when they are moved.
	forks map[int][]int
	// ends are processes that exit just before they are moved.
	ends map[int]bool
	// unreadable is the error of listing them.
	unreadable error
}

func (c *crowd) list() ([]int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.root), c.unreadable
}

func (c *crowd) enter(pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.root = append(c.root, pid)
}

func (c *crowd) makeCgroup() error { c.made++; return c.makes }

func (c *crowd) move(pid int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refuses[pid]; err != nil {
		return &fs.PathError{Op: "write", Path: "/sys/fs/cgroup/system/cgroup.procs", Err: err}
	}
	c.root = slices.DeleteFunc(c.root, func(other int) bool { return other == pid })
	c.root = append(c.root, c.forks[pid]...)
	if c.ends[pid] {
		return &fs.PathError{Op: "write", Path: "/sys/fs/cgroup/system/cgroup.procs", Err: syscall.ESRCH}
	}
	c.moved = append(c.moved, pid)
	return nil
}

// system moves a crowd, in which the processes with these PIDs have an executable.
func system(t *testing.T, c *crowd, programs ...int) *System {
	t.Helper()
	proc := t.TempDir()
	for _, pid := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(programs, c.root)))) {
		directory := filepath.Join(proc, strconv.Itoa(pid))
		if err := os.MkdirAll(directory, 0o755); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(programs, pid) {
			continue
		}
		if err := os.Symlink("/bin/program", filepath.Join(directory, "exe")); err != nil {
			t.Fatal(err)
		}
	}
	return &System{cgroup: "/system", processes: c, proc: proc, clock: clock.RealClock{}}
}

func TestSystemProcessesAreMoved(t *testing.T) {
	for _, test := range []struct {
		name        string
		crowd       *crowd
		programs    []int
		moved, left []int
		want        string
	}{
		{name: "those with programs are, and threads of the kernel are not",
			crowd: &crowd{root: []int{2, 7, 8, 9}}, programs: []int{8, 9}, moved: []int{8, 9}, left: []int{2, 7}},
		{name: "process 1 is not",
			crowd: &crowd{root: []int{1, 8}}, programs: []int{1, 8}, moved: []int{8}, left: []int{1}},
		{name: "those of other PID namespaces, which show as 0, are not",
			crowd: &crowd{root: []int{0, 8}}, programs: []int{0, 8}, moved: []int{8}, left: []int{0}},
		{name: "where there are none, nothing is wrong", crowd: &crowd{root: []int{2}}, left: []int{2}},
		{name: "one that ends meanwhile is no failure",
			crowd: &crowd{root: []int{7, 8, 9}, ends: map[int]bool{8: true}}, programs: []int{7, 8, 9}, moved: []int{7, 9}},
		{name: "so are those that have been forked meanwhile, and their children",
			crowd: &crowd{root: []int{8}, forks: map[int][]int{8: {10, 11}, 11: {12}}}, programs: []int{8, 10, 11, 12}, moved: []int{8, 10, 11, 12}},
		{name: "one that cannot be moved keeps none from it, and is told of with its error",
			crowd:    &crowd{root: []int{7, 8, 9}, refuses: map[int]error{8: syscall.EINVAL}, forks: map[int][]int{9: {10}}},
			programs: []int{7, 8, 9, 10}, moved: []int{7, 9, 10}, left: []int{8},
			want: "--system-cgroups: move process 8 to /system: write /sys/fs/cgroup/system/cgroup.procs: invalid argument"},
		{name: "without the right to do so, the message says what to do",
			crowd: &crowd{root: []int{7, 8}, refuses: map[int]error{7: syscall.EACCES, 8: syscall.EACCES}}, programs: []int{7, 8}, left: []int{7, 8},
			want: "--system-cgroups: move process 7 and 1 more to /system: write /sys/fs/cgroup/system/cgroup.procs: permission denied; " +
				"run svclet as root where /sys/fs/cgroup can be written, or leave the flag out"},
		{name: "into a cgroup that others are divided by, the message says what to do",
			crowd: &crowd{root: []int{7}, refuses: map[int]error{7: syscall.EBUSY}}, programs: []int{7}, left: []int{7},
			want: "--system-cgroups: move process 7 to /system: write /sys/fs/cgroup/system/cgroup.procs: device or resource busy; name a cgroup that has none below it"},
		{name: "where the cgroup cannot be made, the message says what to do",
			crowd: &crowd{root: []int{7}, makes: &fs.PathError{Op: "mkdir", Path: "/sys/fs/cgroup/system", Err: syscall.EROFS}}, programs: []int{7}, left: []int{7},
			want: "--system-cgroups: make the cgroup /system: mkdir /sys/fs/cgroup/system: read-only file system; " +
				"run svclet as root where /sys/fs/cgroup can be written, or leave the flag out"},
		{name: "where they cannot be listed, that is told",
			crowd: &crowd{root: []int{7}, unreadable: errors.New("no such device")}, programs: []int{7}, left: []int{7},
			want: "--system-cgroups: list the processes of the root cgroup: no such device"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := test.crowd
			got := ""
			if err := system(t, c, test.programs...).move(t.Context()); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("error %q, want %q", got, test.want)
			}
			slices.Sort(c.moved)
			if diff := cmp.Diff(test.moved, c.moved); diff != "" {
				t.Errorf("moved (-want +got):\n%s", diff)
			}
			if !slices.Equal(c.root, test.left) {
				t.Errorf("%v are left, want %v", c.root, test.left)
			}
			if c.made != 1 {
				t.Errorf("the cgroup was made %d times, want once", c.made)
			}
		})
	}
}

// TestMoveGivesUpOnForkingProcessesUntilTheNextPeriod has each process that is moved
// leave another one in the root.
func TestMoveGivesUpOnForkingProcessesUntilTheNextPeriod(t *testing.T) {
	const first, last = 8, 100
	c := &crowd{root: []int{first}, forks: map[int][]int{}}
	programs := []int{first}
	for pid := first; pid < last; pid++ {
		c.forks[pid] = []int{pid + 1}
		programs = append(programs, pid+1)
	}
	s := system(t, c, programs...)
	want := "--system-cgroups: processes come into the root cgroup as fast as they are moved to /system: 1 are left"
	if err := s.move(t.Context()); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if len(c.moved) != systemRounds {
		t.Errorf("%d were moved, want %d", len(c.moved), systemRounds)
	}
	c.forks = nil
	if err := s.move(t.Context()); err != nil || len(c.root) != 0 {
		t.Errorf("%v are left the next time: %v", c.root, err)
	}
}

func TestNoProcessIsMovedAfterTheContextIsDone(t *testing.T) {
	c := &crowd{root: []int{7, 8}}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := system(t, c, 7, 8).move(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
	if len(c.moved) != 0 {
		t.Errorf("%v were moved", c.moved)
	}
}

func TestSystemProcessesAreMovedAtStartAndEveryMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
		c := &crowd{root: []int{7}, refuses: map[int]error{9: syscall.EINVAL}}
		s := system(t, c, 7, 8, 9, 10)
		ended := make(chan struct{})
		go func() { s.Move(ctx); s.Run(ctx); close(ended) }()
		expect := func(after time.Duration, moved ...int) {
			t.Helper()
			time.Sleep(after) // of the bubble's clock
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			if !slices.Equal(c.moved, moved) {
				t.Errorf("%v have been moved, want %v", c.moved, moved)
			}
		}
		expect(0, 7)
		c.enter(8)
		expect(time.Minute-time.Second, 7)
		expect(time.Second, 7, 8)
		// A process that cannot be moved is logged, and the others are moved nonetheless.
		c.enter(9)
		expect(time.Minute, 7, 8)
		c.enter(10)
		expect(time.Minute, 7, 8, 10)
		stop()
		<-ended
		c.enter(8)
		expect(time.Hour, 7, 8, 10)
		log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
		want := fmt.Sprintf("cgroup=%q", "/system")
		if n := strings.Count(log, "Failed to move all system processes into the system cgroup"); n != 2 || !strings.Contains(log, want) || !strings.Contains(log, "move process 9 to /system") {
			t.Errorf("the log has %d failures, want 2:\n%s", n, log)
		}
	})
}
