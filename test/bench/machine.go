package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// machine describes the machine of the benchmark.
type machine struct {
	Processors int     `json:"processors"`
	Model      string  `json:"model"`
	MemoryMB   float64 `json:"memoryMB"`
	Kernel     string  `json:"kernel"`
	// Fsync is the median time of a 4 KiB append with fsync on the disk of the
	// data, in milliseconds: the floor of every write.
	Fsync float64 `json:"fsyncMilliseconds"`
}

func (m machine) String() string {
	return fmt.Sprintf("%d processors (%s), %.0f MB, Linux %s, fsync %s ms", m.Processors, m.Model, m.MemoryMB, m.Kernel, figures(m.Fsync))
}

// tmpfs is the magic number of a file system in memory (statfs(2)).
const tmpfs = 0x01021994

// inspect describes the machine. It refuses a directory that is in memory.
func inspect(dir string) (machine, error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return machine{}, fmt.Errorf("statfs %s: %w", dir, err)
	}
	if fs.Type == tmpfs {
		return machine{}, fmt.Errorf("%s is in memory, where fsync costs nothing: choose a directory on a disk with --dir", dir)
	}
	m := machine{Processors: runtime.NumCPU()}
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return machine{}, err
	}
	m.Kernel = strings.TrimSpace(string(kernel))
	cpuinfo, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return machine{}, err
	}
	for line := range strings.Lines(string(cpuinfo)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
			m.Model = strings.TrimSpace(value)
		}
	}
	meminfo, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return machine{}, err
	}
	total, err := kilobytes(meminfo, "MemTotal")
	if err != nil {
		return machine{}, err
	}
	m.MemoryMB = float64(total) / 1e6
	m.Fsync, err = probeFsync(filepath.Join(dir, "fsync"))
	return m, err
}

// probeFsync measures appends to a file, and removes the file.
func probeFsync(file string) (median float64, err error) {
	f, err := os.Create(file)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(file)) }()
	var times []time.Duration
	for page := make([]byte, 4<<10); len(times) < 200; {
		began := time.Now()
		if _, err := f.Write(page); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	return percentile(times, 50), nil
}
