package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// System moves system processes into a cgroup of their own: those that are in the
// root cgroup in every hierarchy (--system-cgroups). Process 1 and kernel threads
// stay there: limits on these would delay all processes.
type System struct {
	cgroup    string
	processes processes
	// proc is the proc file system.
	proc  string
	clock clock.WithTicker
}

// processes are those in the root cgroup.
type processes interface {
	// list returns their PIDs.
	list() ([]int, error)
	// makeCgroup creates the destination cgroup if it does not exist.
	makeCgroup() error
	move(pid int) error
}

// The period of Run, and how many times Move moves what it finds, because a
// process may have forked before it was moved. Both are kubelet's.
const (
	systemPeriod = time.Minute
	systemRounds = 11
)

// NewSystem returns a System for the cgroup with this absolute name. It changes
// nothing yet.
func NewSystem(cgroup string, c clock.WithTicker) (*System, error) {
	found, err := newProcesses(c, nil, Cgroupfs.name(cgroup))
	if err != nil {
		return nil, fmt.Errorf("--system-cgroups: %w", err)
	}
	return &System{cgroup: cgroup, processes: found, proc: "/proc", clock: c}, nil
}

// Move moves the processes that are in the root cgroup now, and logs those that
// cannot be moved. Call it before containers are started: their runtime is then
// moved too, and the processes that it starts are no longer in the root cgroup, so
// that they cannot be moved out of a cgroup that they were just given.
func (s *System) Move(ctx context.Context) {
	if err := s.move(ctx); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Failed to move all system processes into the system cgroup", "cgroup", s.cgroup)
	}
}

// Run moves new processes, every minute until ctx is done.
func (s *System) Run(ctx context.Context) {
	ticker := s.clock.NewTicker(systemPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			s.Move(ctx)
		}
	}
}

func (s *System) move(ctx context.Context) error {
	if err := s.processes.makeCgroup(); err != nil {
		return fmt.Errorf("--system-cgroups: make the cgroup %s: %w%s", s.cgroup, err, remedy(err))
	}
	refused := map[int]error{}
	for round := 0; ; round++ {
		pids, err := s.left()
		if err != nil {
			return fmt.Errorf("--system-cgroups: list the processes of the root cgroup: %w", err)
		}
		if !slices.ContainsFunc(pids, func(pid int) bool { return refused[pid] == nil }) {
			return s.refusal(refused)
		}
		if round == systemRounds {
			return fmt.Errorf("--system-cgroups: processes come into the root cgroup as fast as they are moved to %s: %d are left", s.cgroup, len(pids))
		}
		for _, pid := range pids {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if refused[pid] != nil {
				continue
			}
			// The process has exited meanwhile.
			if err := s.processes.move(pid); err != nil && !errors.Is(err, syscall.ESRCH) {
				refused[pid] = err
			}
		}
	}
}

// left returns the processes that are still to be moved.
func (s *System) left() ([]int, error) {
	pids, err := s.processes.list()
	return slices.DeleteFunc(pids, func(pid int) bool {
		// A process of another PID namespace has PID 0, which would move the agent itself.
		return pid <= 1 || s.ofKernel(pid)
	}), err
}

// ofKernel reports whether a process is a kernel thread, which has no executable.
// An exited process has none either.
func (s *System) ofKernel(pid int) bool {
	_, err := os.Readlink(filepath.Join(s.proc, strconv.Itoa(pid), "exe"))
	return errors.Is(err, fs.ErrNotExist)
}

// refusal returns an error with the processes that could not be moved, if any.
func (s *System) refusal(refused map[int]error) error {
	if len(refused) == 0 {
		return nil
	}
	pid, more := slices.Min(slices.Collect(maps.Keys(refused))), ""
	if len(refused) > 1 {
		more = fmt.Sprintf(" and %d more", len(refused)-1)
	}
	err := refused[pid]
	return fmt.Errorf("--system-cgroups: move process %d%s to %s: %w%s", pid, more, s.cgroup, err, remedy(err))
}

// remedy returns what the operator can do about a kernel error, for the end of a
// message.
func remedy(err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return "; run svclet as root where /sys/fs/cgroup can be written, or leave the flag out"
	case errors.Is(err, syscall.EBUSY):
		// In cgroup v2, a cgroup has processes only if its children have no controllers.
		return "; name a cgroup that has none below it"
	}
	return ""
}
