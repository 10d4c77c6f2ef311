package footprint

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// usualSlack returns what the process was started with.
var usualSlack = sync.OnceValue(func() time.Duration {
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return 50 * time.Microsecond // the default of Linux
	}
	return time.Duration(slack)
})

// setSlack sets how late the timers of all threads may be. That of a thread goes to those that it
// starts, so threads that are started meanwhile are found in a second pass.
func setSlack(slack time.Duration) error {
	for range 2 {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, thread := range threads {
			// It is a file of each thread's own, but only in the directories of processes.
			err := os.WriteFile("/proc/"+thread.Name()+"/timerslack_ns", strconv.AppendInt(nil, int64(slack), 10), 0)
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
	}
	return nil
}

// processorTime returns how long processors have worked for the process.
func processorTime() time.Duration {
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// StartProcess starts a command whose timers are not late, as those of this process may be
// ([Idle]): a process inherits that of the thread that starts it. A system that does not let
// threads set it has not let Idle either.
func StartProcess(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(usualSlack()), 0, 0, 0)
	return cmd.Start()
}
