package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// Unified reports whether the machine has cgroup v2.
func Unified() bool { return cgroups.IsCgroup2UnifiedMode() }

// WatchMemory calls crossed, from a goroutine, each time that the memory usage of a cgroup
// crosses a number of bytes, in either direction. The caller calls stop at the end. It needs
// cgroup v1: v2 has no such notification.
func WatchMemory(cgroup string, bytes int64, crossed func()) (stop func(), err error) {
	points, err := mountPoints()
	if err != nil {
		return nil, err
	}
	mount := points["memory"]
	if mount == "" {
		return nil, errors.New("there is no cgroup v1 of memory: set kernelMemcgNotification to false")
	}
	return watchMemory(filepath.Join(mount, cgroup), bytes, crossed)
}

func watchMemory(dir string, bytes int64, crossed func()) (stop func(), err error) {
	usage, err := os.Open(filepath.Join(dir, "memory.usage_in_bytes"))
	if err != nil {
		return nil, err
	}
	defer usage.Close() // the kernel keeps what it needs
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("making an event file: %w", err)
	}
	event := os.NewFile(uintptr(fd), "eventfd")
	control := fmt.Sprintf("%d %d %d", fd, usage.Fd(), bytes)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.event_control"), []byte(control), 0); err != nil {
		return nil, errors.Join(err, event.Close())
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for count := make([]byte, 8); ; {
			if _, err := event.Read(count); err != nil {
				return // it is closed
			}
			crossed()
		}
	})
	return func() {
		_ = event.Close() // which ends the notification, and the goroutine
		reading.Wait()
	}, nil
}
