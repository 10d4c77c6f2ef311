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
)

// System keeps the processes of the system in a cgroup of their own: those that
// are in none but the root of all, in every hierarchy (--system-cgroups). Process 1 stays where it
// is, and so do threads of the kernel: a bound on these would hold up everybody.
type System struct {
	cgroup    string
	processes processes
	// proc is where processes are shown.
	proc string
}

// processes are those in the root of all cgroups.
type processes interface {
	// list are those right in it, by their ids.
	list() ([]int, error)
	// makeCgroup makes the one that they are to be in, where it is not there yet.
	makeCgroup() error
	move(pid int) error
}

// Of System, as of kubelet: how often it looks for processes that have come into
// the root, and how many times it moves what it finds before it leaves the rest
// to the next time. A process may have forked before it was moved.
const (
	systemPeriod = time.Minute
	systemRounds = 11
)

// NewSystem finds the machine's cgroups. cgroup is the absolute name of the one
// in which processes are to be. Nothing is changed yet.
func NewSystem(cgroup string) (*System, error) {
	found, err := newProcesses(nil, Cgroupfs.name(cgroup))
	if err != nil {
		return nil, fmt.Errorf("--system-cgroups: %w", err)
	}
	return &System{cgroup: cgroup, processes: found, proc: "/proc"}, nil
}

// Move moves the processes that are in the root now. That some cannot be moved
// is logged. It is to be called before containers are started: what starts them
// is moved with the others, and what it starts then is in the root no more, from
// where it could be moved out of the cgroup that it is just given.
func (s *System) Move(ctx context.Context) {
	if err := s.move(ctx); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Failed to move all system processes into the system cgroup", "cgroup", s.cgroup)
	}
}

// Run moves, each minute until ctx is done, those that have come since.
func (s *System) Run(ctx context.Context) {
	ticker := time.NewTicker(systemPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
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
			// One that has ended meanwhile is where it should be.
			if err := s.processes.move(pid); err != nil && !errors.Is(err, syscall.ESRCH) {
				refused[pid] = err
			}
		}
	}
}

// left are the processes in the root that do not belong there.
func (s *System) left() ([]int, error) {
	pids, err := s.processes.list()
	return slices.DeleteFunc(pids, func(pid int) bool {
		// A process of another PID namespace shows as 0, which to move would be to
		// move oneself.
		return pid <= 1 || s.ofKernel(pid)
	}), err
}

// ofKernel says whether a process is a thread of the kernel, which has no program.
// Neither has one that has ended.
func (s *System) ofKernel(pid int) bool {
	_, err := os.Readlink(filepath.Join(s.proc, strconv.Itoa(pid), "exe"))
	return errors.Is(err, fs.ErrNotExist)
}

// refusal tells of the processes that could not be moved, if there are any.
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

// remedy says what can be done about an error of the kernel, as the end of a
// message.
func remedy(err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return "; run svclet as root where /sys/fs/cgroup can be written, or leave the flag out"
	case errors.Is(err, syscall.EBUSY):
		// Cgroup v2 has processes only where no cgroup below is given controllers.
		return "; name a cgroup that has none below it"
	}
	return ""
}
