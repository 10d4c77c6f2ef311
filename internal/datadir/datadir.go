// Package datadir owns the layout of the data directory of "svc up", the lock on
// it, and how other commands of the same user find it.
package datadir

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// RootDefault is the default data directory of root, the only user that can run
// pods.
const RootDefault = "/var/lib/svc"

// Dir is the absolute path of a data directory.
type Dir string

// PKI is the directory of keys and certificates.
func (d Dir) PKI() string { return d.join("pki") }

// Etcd is the directory of the embedded etcd.
func (d Dir) Etcd() string { return d.join("etcd") }

// Svclet is the root directory of the node agent.
func (d Dir) Svclet() string { return d.join("svclet") }

// Containerd is the directory of the containerd that svc runs itself.
func (d Dir) Containerd() string { return d.join("containerd") }

// AdminFile is the kubeconfig of the cluster's administrator.
func (d Dir) AdminFile() string { return d.join("admin.svcconfig") }

// ControllersFile is the kubeconfig of the controller manager.
func (d Dir) ControllersFile() string { return d.join("controller-manager.svcconfig") }

// NodeFile is the kubeconfig of the node agent.
func (d Dir) NodeFile() string { return d.join("node.svcconfig") }

// PodLogs is the directory of the pods' logs. The agent deletes logs of pods
// that it does not know, so two agents must not share a directory. The default
// data directory uses the path where log collectors expect them.
func (d Dir) PodLogs() string {
	if d == RootDefault {
		return "/var/log/pods"
	}
	return filepath.Join(d.Svclet(), "log", "pods")
}

// LogLinks is the directory of the links to containers' logs; see PodLogs.
func (d Dir) LogLinks() string {
	if d == RootDefault {
		return "/var/log/containers"
	}
	return filepath.Join(d.Svclet(), "log", "containers")
}

// Cgroup is the parent cgroup of all pods. It is not shared with a kubelet on
// the same machine, nor with another data directory, because an agent deletes
// cgroups of pods that it does not know.
func (d Dir) Cgroup() string {
	if d == RootDefault {
		return "/svc"
	}
	sum := sha256.Sum256([]byte(d))
	return "/svc-" + hex.EncodeToString(sum[:4])
}

func (d Dir) lockFile() string { return d.join("svc.lock") }

func (d Dir) join(name string) string { return filepath.Join(string(d), name) }

// ExplainFull adds the remedy to an error that says that the disk is full or
// the quota is exceeded. It returns any other error unchanged.
func (d Dir) ExplainFull(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("the disk under %s is full: free at least 256 MiB: %w", d, err)
	}
	return err
}

// Open waits for up to readerWait, in readerWaits steps, for other processes that call InUse,
// which holds the lock for a moment.
const (
	readerWait  = 100 * time.Millisecond
	readerWaits = 10
)

// Open creates the directory if it does not exist, and locks it for this process
// until the lock is closed or the process ends. Errors name the flag --data-dir.
func (d Dir) Open() (lock *os.File, err error) {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return nil, fmt.Errorf("--data-dir: cannot make the directory: %w; choose another", d.ExplainFull(err))
	}
	lock, err = os.OpenFile(d.lockFile(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--data-dir: cannot write to %s: %w; choose another, or give this user access", d, err)
	}
	for range readerWaits {
		if err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
			break
		}
		time.Sleep(readerWait / readerWaits)
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		holder := readPID(lock)
		lock.Close()
		return nil, fmt.Errorf("--data-dir: %s is in use by process %s: stop that, or choose another directory", d, holder)
	}
	if err == nil {
		err = writePID(lock)
	}
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("--data-dir: cannot lock %s: %w; choose another", d, d.ExplainFull(err))
	}
	return lock, nil
}

// InUse reports whether a process has the directory open.
func (d Dir) InUse() bool {
	lock, err := os.Open(d.lockFile())
	if err != nil {
		return false
	}
	defer lock.Close()
	return errors.Is(syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}
