package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockTick is the unit of the times in /proc/PID/stat: USER_HZ, which is 100
// on every architecture that Linux and Go share.
const clockTick = 10 * time.Millisecond

// memory is the memory usage of a set of processes, in bytes.
type memory struct {
	RSS  uint64 // resident pages, shared ones counted once for each process
	PSS  uint64 // resident pages, shared ones divided among their processes
	Anon uint64 // resident pages that no file backs: the heap and stacks
	Peak uint64 // the sum of each process's largest RSS so far
}

// members returns the processes of the groups, including children of servers.
func members(groups []int) ([]int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // The process has exited meanwhile.
		}
		stat, err := parseStat(content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if slices.Contains(groups, stat.group) {
			pids = append(pids, stat.pid)
		}
	}
	if len(pids) < len(groups) {
		return nil, fmt.Errorf("%d processes in the groups %v: a server has ended", len(pids), groups)
	}
	return pids, nil
}

// processStat is the part that the benchmark uses of /proc/PID/stat (proc_pid_stat(5)).
type processStat struct {
	pid, group int
	cpu        time.Duration // user and system time
}

func parseStat(content []byte) (processStat, error) {
	// The second field is the command's name in parentheses, which may itself
	// contain spaces and parentheses.
	end := bytes.LastIndexByte(content, ')')
	begin := bytes.IndexByte(content, ' ')
	if begin < 0 || end < 0 {
		return processStat{}, fmt.Errorf("no command in %q", content)
	}
	pid, err := strconv.Atoi(string(content[:begin]))
	if err != nil {
		return processStat{}, err
	}
	fields := strings.Fields(string(content[end+1:])) // from the third field on
	if len(fields) < 13 {
		return processStat{}, fmt.Errorf("too few fields in %q", content)
	}
	var numbers [3]int64
	for i, field := range []int{5, 14, 15} { // pgrp, utime, stime
		if numbers[i], err = strconv.ParseInt(fields[field-3], 10, 64); err != nil {
			return processStat{}, err
		}
	}
	return processStat{pid: pid, group: int(numbers[0]), cpu: time.Duration(numbers[1]+numbers[2]) * clockTick}, nil
}

// cpuTime returns the CPU time that the groups have used so far.
func cpuTime(groups []int) (time.Duration, error) {
	pids, err := members(groups)
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, pid := range pids {
		content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		stat, err := parseStat(content)
		if err != nil {
			return 0, err
		}
		sum += stat.cpu
	}
	return sum, nil
}

// ownCPU returns the CPU time of this process, which runs the clients, so far.
func ownCPU() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0 // It fails only for a bad argument (getrusage(2)).
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// memoryOf returns the current memory usage of the groups.
func memoryOf(groups []int) (memory, error) {
	pids, err := members(groups)
	if err != nil {
		return memory{}, err
	}
	var sum memory
	for _, pid := range pids {
		rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return memory{}, err
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return memory{}, err
		}
		for _, f := range []struct {
			into    *uint64
			name    string
			content []byte
		}{
			{&sum.RSS, "Rss", rollup}, {&sum.PSS, "Pss", rollup}, {&sum.Anon, "Anonymous", rollup}, {&sum.Peak, "VmHWM", status},
		} {
			size, err := kilobytes(f.content, f.name)
			if err != nil {
				return memory{}, fmt.Errorf("process %d: %w", pid, err)
			}
			*f.into += size
		}
	}
	return sum, nil
}

// kilobytes reads the line "NAME:   123 kB" and returns it in bytes.
func kilobytes(content []byte, name string) (uint64, error) {
	for line := range strings.Lines(string(content)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			size, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return size << 10, err
		}
	}
	return 0, fmt.Errorf("no line %q in its memory statistics", name)
}
