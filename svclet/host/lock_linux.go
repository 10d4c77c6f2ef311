package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// lockAgain is the polling period for a lock that is held.
const lockAgain = 500 * time.Millisecond

// Held is a locked file. It is locked until it is closed or the process exits.
type Held struct{ file *os.File }

// Lock locks a file, which it creates if necessary, and waits while another
// process holds the lock.
func Lock(ctx context.Context, path string) (*Held, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--lock-file: %w", err)
	}
	for told := false; ; told = true {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return &Held{file}, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			file.Close()
			return nil, fmt.Errorf("--lock-file: lock %s: %w", path, err)
		}
		if !told {
			klog.FromContext(ctx).Info("Waiting for another process to release the lock file", "path", path)
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, ctx.Err()
		case <-time.After(lockAgain):
		}
	}
}

// Close releases the lock.
func (h *Held) Close() error { return h.file.Close() }

// Contended calls contended once, when another process opens or removes the lock
// file before ctx is done.
func (h *Held) Contended(ctx context.Context, contended func()) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("--exit-on-lock-contention: %w", err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, h.file.Name(), unix.IN_OPEN|unix.IN_DELETE_SELF); err != nil {
		events.Close()
		return fmt.Errorf("--exit-on-lock-contention: watch %s: %w", h.file.Name(), err)
	}
	stopped := context.AfterFunc(ctx, func() { events.Close() })
	go func() {
		defer stopped()
		defer events.Close()
		buffer := make([]byte, unix.SizeofInotifyEvent+unix.NAME_MAX+1)
		if n, err := events.Read(buffer); err == nil && n > 0 {
			contended()
		}
	}()
	return nil
}
