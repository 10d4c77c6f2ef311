package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// lockRetry is the polling period for a lock that is held.
const lockRetry = 500 * time.Millisecond

// Held is a locked file. It is locked until it is closed or the process exits.
type Held struct{ file *os.File }

// Lock locks a file, which it creates if necessary, and waits while another
// process holds the lock.
func Lock(ctx context.Context, path string, c clock.Clock) (*Held, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--lock-file: %w", err)
	}
	for logged := false; ; logged = true {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return &Held{file}, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			file.Close()
			return nil, fmt.Errorf("--lock-file: lock %s: %w", path, err)
		}
		if !logged {
			klog.FromContext(ctx).Info("Waiting for another process to release the lock file", "path", path)
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, ctx.Err()
		case <-c.After(lockRetry):
		}
	}
}

// Close releases the lock.
func (h *Held) Close() error { return h.file.Close() }

// Contention is a watch of a lock file for another process that wants the lock.
type Contention struct{ events *os.File }

// Watch begins to watch the lock file. The caller has to call [Contention.Wait].
func (h *Held) Watch() (*Contention, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("--exit-on-lock-contention: %w", err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, h.file.Name(), unix.IN_OPEN|unix.IN_DELETE_SELF); err != nil {
		events.Close()
		return nil, fmt.Errorf("--exit-on-lock-contention: watch %s: %w", h.file.Name(), err)
	}
	return &Contention{events}, nil
}

// Wait waits until another process opens or removes the lock file, and reports
// whether one has before ctx is done. It ends the watch.
func (c *Contention) Wait(ctx context.Context) bool {
	defer c.events.Close()
	stopped := context.AfterFunc(ctx, func() { c.events.Close() })
	defer stopped()
	buffer := make([]byte, unix.SizeofInotifyEvent+unix.NAME_MAX+1)
	n, err := c.events.Read(buffer)
	return err == nil && n > 0
}
