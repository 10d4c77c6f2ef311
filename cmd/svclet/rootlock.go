package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"svc.dev/svc/svclet/cgroup"
	"svc.dev/svc/svclet/config"
)

// lockRoot locks the root directory, which it creates if necessary, for this process
// until the lock is closed or the process ends. Two agents on one directory would stop
// each other's containerd and pods.
func lockRoot(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("--root-dir: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "svclet.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = lockFile(lock, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("--root-dir: %w", err)
	}
	return lock, nil
}

// lockFile locks an open file, or closes it: dir, which the lock is for, is in use then.
func lockFile(file *os.File, dir string) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return nil
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("%s is in use by another svclet: stop that, or choose another directory", dir)
	}
	return errors.Join(err, file.Close())
}

// locks are files that are locked until they are closed.
type locks []*os.File

// Close ends the locks.
func (l locks) Close() {
	for _, file := range l {
		_ = file.Close()
	}
}

// lockShared locks the directories in which agents with different root directories find
// pods: that of logs, and the cgroup. Each would end and remove the pods of the other,
// which it does not know.
func lockShared(s *config.Settings) (held locks, err error) {
	c := s.Configuration
	if err := os.MkdirAll(c.PodLogsDir, 0o755); err != nil {
		return nil, fmt.Errorf("podLogsDir: %w", err)
	}
	if err := held.lock("podLogsDir", c.PodLogsDir); err != nil {
		return nil, err
	}
	if !*c.CgroupsPerQOS {
		return held, nil // no cgroup of a pod is removed
	}
	dir, err := cgroup.Driver(c.CgroupDriver).Directory(c.CgroupRoot)
	if err == nil {
		err = held.lock("--cgroup-root", dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return held, nil // the agent reports a missing cgroup
	}
	if err != nil {
		held.Close()
		return nil, err
	}
	return held, nil
}

func (l *locks) lock(setting, dir string) error {
	file, err := os.Open(dir)
	if err == nil {
		err = lockFile(file, dir)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", setting, err)
	}
	*l = append(*l, file)
	return nil
}

// refuseForeignPods returns an error if the cgroup has running pods of another agent: ones
// that run before svclet, with its own containerd, has used its root directory. They
// would be killed.
func refuseForeignPods(s *config.Settings) error {
	c := s.Configuration
	_, err := os.Stat(containerdDir(s.RootDir))
	if used := !errors.Is(err, fs.ErrNotExist); used || c.ContainerRuntimeEndpoint != "" || !*c.CgroupsPerQOS {
		return nil
	}
	groups, err := cgroup.New(cgroup.Options{Root: c.CgroupRoot, PerQOS: true, Driver: cgroup.Driver(c.CgroupDriver)})
	if err != nil {
		return err
	}
	running, err := groups.Running()
	if err == nil && len(running) > 0 {
		err = fmt.Errorf("--cgroup-root: %d pods of another agent run in the cgroup %s: stop that agent and its pods, or choose another cgroup",
			len(running), cgroup.Driver(c.CgroupDriver).PodsPath(c.CgroupRoot, true))
	}
	return err
}
