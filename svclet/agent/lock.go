package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"svc.dev/svc/svclet/cgroup"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/containerd"
)

// Locks are the locks of what an agent shares with no other, until they are closed or the
// process ends.
type Locks []*os.File

// Close ends the locks.
func (l Locks) Close() {
	for _, file := range l {
		_ = file.Close() // nothing has been written
	}
}

// Lock locks what two agents must not share: the root directory, which it creates if
// necessary, and the directories in which agents with different root directories find
// pods, that of logs and the cgroup. Each would end and remove the pods of the other.
func Lock(c Config) (held Locks, err error) {
	defer func() {
		if err != nil {
			held.Close()
			held = nil
		}
	}()
	root, err := LockRoot(c.RootDir)
	if err != nil {
		return held, err
	}
	held = append(held, root)
	logs := c.Configuration.PodLogsDir
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return held, fmt.Errorf("podLogsDir: %w", err)
	}
	if err := held.lock("podLogsDir", logs); err != nil {
		return held, err
	}
	if err := held.LockCgroup(c); !errors.Is(err, fs.ErrNotExist) {
		return held, err
	}
	return held, nil // New makes, or reports, a missing cgroup
}

// LockCgroup locks the cgroup of the pods, unless that is locked already. It is called again
// after [New], which may have made the cgroup.
func (l *Locks) LockCgroup(c Config) error {
	if !*c.Configuration.CgroupsPerQOS {
		return nil // no cgroup of a pod is removed
	}
	dir, err := cgroup.Driver(c.Configuration.CgroupDriver).Directory(c.Configuration.CgroupRoot)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(*l, func(file *os.File) bool { return file.Name() == dir }) {
		return nil
	}
	return l.lock("--cgroup-root", dir)
}

func (l *Locks) lock(setting, dir string) error {
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

// LockRoot locks the root directory, which it creates if necessary, for this process
// until the lock is closed or the process ends. Two agents on one directory would stop
// each other's containerd and pods.
func LockRoot(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("--root-dir: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, containerd.LockFile), os.O_RDWR|os.O_CREATE, 0o600)
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
		err = &InUseError{Dir: dir}
	}
	return errors.Join(err, file.Close())
}

// InUseError is the error of a directory that another svclet has locked.
type InUseError struct{ Dir string }

// Error implements error.
func (e *InUseError) Error() string {
	return e.Dir + " is in use by another svclet: stop that, or choose another directory"
}

// RefuseForeignPods returns an error if the cgroup has running pods of another agent: ones
// that run before the agent's own containerd, which has the directory containerdDir, was
// started for the first time. They would be killed.
func RefuseForeignPods(c *config.Configuration, containerdDir string) error {
	if _, err := os.Stat(containerdDir); !errors.Is(err, fs.ErrNotExist) || !*c.CgroupsPerQOS {
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
