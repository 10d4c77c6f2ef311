package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"
)

// Prepare changes the kernel settings and the process's own. It returns what
// failed: the agent runs nonetheless, as kubelet does.
func Prepare(_ context.Context, o Options) []error {
	unix.Umask(umask)
	var problems []error
	if !o.ProtectKernelDefaults {
		problems = setTunables(o)
	}
	for _, step := range []func(Options) error{enterCgroup, setOOMScore, setOpenFiles} {
		if err := step(o); err != nil {
			problems = append(problems, err)
		}
	}
	return problems
}

// umask is the default one, whatever root's is. Files that the agent and its
// containerd create for containers must be readable for all of their users: root
// file systems, /etc/hosts, /etc/resolv.conf. Private files have explicit modes.
const umask = 0o022

func enterCgroup(o Options) error {
	if o.Cgroup == "" {
		return nil
	}
	m, err := manager.New(&cgroups.Cgroup{Path: o.Cgroup, Resources: &cgroups.Resources{SkipDevices: true}})
	if err == nil {
		err = m.Apply(os.Getpid())
	}
	if err != nil {
		return fmt.Errorf("--svclet-cgroups: enter %s: %w", o.Cgroup, err)
	}
	return nil
}

func setOOMScore(o Options) error {
	err := os.WriteFile(o.path("proc/self/oom_score_adj"), []byte(strconv.Itoa(int(o.OOMScoreAdj))), 0o644)
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("--oom-score-adj: this process may not set it to %d, for want of CAP_SYS_RESOURCE", o.OOMScoreAdj)
	}
	if err != nil {
		return fmt.Errorf("--oom-score-adj: %w", err)
	}
	return nil
}

// setOpenFiles sets both limits or, if the hard limit may not be raised, the soft
// limit to the hard one.
func setOpenFiles(o Options) error {
	want := uint64(max(o.MaxOpenFiles, 0))
	err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: want, Max: want})
	if err == nil {
		return nil
	}
	var limit unix.Rlimit
	if errors.Is(err, syscall.EPERM) && unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		limit.Cur = min(want, limit.Max)
		if unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
			return fmt.Errorf("--max-open-files: this process may not have %d, only %d", want, limit.Cur)
		}
	}
	return fmt.Errorf("--max-open-files: %w", err)
}
