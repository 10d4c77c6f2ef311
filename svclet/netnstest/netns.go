//go:build linux

package netnstest

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Run runs a test on a thread of its own, in a new network namespace with the loopback
// interface. The test must not end by FailNow or Skip. Run skips it without the permission, or
// without a program that it needs, unless that is empty.
func Run[T testing.TB](t T, needs string, test func(t T)) {
	t.Helper()
	if needs != "" {
		if _, err := exec.LookPath(needs); err != nil {
			t.Skip(err)
		}
	}
	fd, err := New(t)
	if err == nil {
		err = In(fd, func() error { test(t); return nil })
	}
	if err != nil {
		t.Fatal(err)
	}
}

// New returns the file descriptor of a new network namespace with the loopback interface, which
// stays until the test ends. It skips the test without the permission.
func New(t testing.TB) (fd int, err error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root makes network namespaces")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends in the namespace
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		done <- err
	}()
	if err := <-done; errors.Is(err, unix.EPERM) {
		t.Skip(err)
	} else if err != nil {
		return -1, err
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd, In(fd, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
}

// In runs a function on a thread of its own in a network namespace.
func In(fd int, do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends in the namespace
		err := unix.Setns(fd, unix.CLONE_NEWNET)
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}
