package node

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
)

// Machine describes the machine's resources and identity.
type Machine struct {
	CPUs int
	// Memory, Swap and Storage are in bytes; Storage is the size of the file system of
	// the agent's root directory, 0 if unknown.
	Memory, Swap, Storage int64
	// HugePages is the number of pages by page size in bytes.
	HugePages map[int64]int64

	MachineID, SystemUUID, BootID string
	KernelVersion, OSImage        string
}

// ReadMachine reads the description from files below root ("/"), and the size of
// dir's file system. What is not available stays empty, except the number of CPUs
// and the memory.
func ReadMachine(root, dir string) (Machine, error) {
	read := func(path string) string {
		content, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return ""
		}
		return strings.Trim(string(content), " \n\x00")
	}
	first := func(paths ...string) string {
		for _, path := range paths {
			if content := read(path); content != "" {
				return content
			}
		}
		return ""
	}
	m := Machine{
		CPUs:          countCPUs(read("sys/devices/system/cpu/online")),
		MachineID:     first("etc/machine-id", "var/lib/dbus/machine-id"),
		SystemUUID:    first("sys/class/dmi/id/product_uuid", "proc/device-tree/system-id", "proc/device-tree/vm,uuid", "etc/machine-id"),
		BootID:        read("proc/sys/kernel/random/boot_id"),
		KernelVersion: read("proc/sys/kernel/osrelease"),
		OSImage:       osImage(first("etc/os-release", "usr/lib/os-release")),
	}
	if m.CPUs == 0 {
		m.CPUs = goruntime.NumCPU()
	}
	memory := meminfo(read("proc/meminfo"))
	if m.Memory, m.Swap = memory["MemTotal"], memory["SwapTotal"]; m.Memory <= 0 {
		return m, errors.New("failed to read the size of the memory: /proc/meminfo has no MemTotal")
	}
	pages, err := filepath.Glob(filepath.Join(root, "sys/kernel/mm/hugepages/hugepages-*kB"))
	if err != nil {
		return m, err
	}
	m.HugePages = map[int64]int64{}
	for _, path := range pages {
		kilobytes := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "hugepages-"), "kB")
		size, err := strconv.ParseInt(kilobytes, 10, 64)
		if err != nil {
			return m, fmt.Errorf("%s: %w", path, err)
		}
		content, err := os.ReadFile(filepath.Join(path, "nr_hugepages"))
		if err != nil {
			return m, err
		}
		if m.HugePages[size<<10], err = strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64); err != nil {
			return m, fmt.Errorf("%s: %w", path, err)
		}
	}
	if m.Storage, err = fileSystemSize(dir); err != nil {
		return m, fmt.Errorf("failed to read the size of the file system of %s: %w", dir, err)
	}
	return m, nil
}

// countCPUs counts the CPUs of a list like "0-3,8". It returns 0 for an invalid
// list.
func countCPUs(list string) int {
	count := 0
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			to = from
		}
		a, errA := strconv.Atoi(from)
		b, errB := strconv.Atoi(to)
		if errA != nil || errB != nil || b < a {
			return 0
		}
		count += b - a + 1
	}
	return count
}

// meminfo returns the figures of /proc/meminfo in bytes.
func meminfo(content string) map[string]int64 {
	figures := map[string]int64{}
	lines := bufio.NewScanner(bytes.NewBufferString(content))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 3 || fields[2] != "kB" {
			continue
		}
		if kilobytes, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
			figures[strings.TrimSuffix(fields[0], ":")] = kilobytes << 10
		}
	}
	return figures
}

// osImage returns the pretty name of the operating system.
func osImage(release string) string {
	for line := range strings.SplitSeq(release, "\n") {
		if name, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			return strings.Trim(name, `"'`)
		}
	}
	return "Linux"
}
