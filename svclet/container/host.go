package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Host describes the machine as far as configurations depend on it.
type Host struct {
	// MemoryCapacity and SwapCapacity are in bytes.
	MemoryCapacity, SwapCapacity int64
	// CgroupV2 reports whether the unified hierarchy is in use.
	CgroupV2 bool
	// SwapController reports whether cgroups can limit swap.
	SwapController bool
	AppArmor       bool
	SELinux        bool
	// HugepageSizes are the kernel's huge page sizes in the notation of cgroups
	// ("2MB").
	HugepageSizes []string
	// ThermalThrottle are the directories of the CPUs' thermal throttling counters,
	// which are masked in containers.
	ThermalThrottle []string
}

// ReadHost reads the description of the machine from proc and sys below root
// ("/").
func ReadHost(root string) (Host, error) {
	host := Host{
		CgroupV2: exists(root, "sys/fs/cgroup/cgroup.controllers"),
		SELinux:  exists(root, "sys/fs/selinux/enforce"),
	}
	switch enabled, err := os.ReadFile(filepath.Join(root, "sys/module/apparmor/parameters/enabled")); {
	case err == nil:
		host.AppArmor = strings.HasPrefix(string(enabled), "Y")
	case !errors.Is(err, os.ErrNotExist):
		return Host{}, fmt.Errorf("detect AppArmor: %w", err)
	}
	var err error
	if host.MemoryCapacity, host.SwapCapacity, err = readMemory(filepath.Join(root, "proc/meminfo")); err != nil {
		return Host{}, err
	}
	if host.HugepageSizes, err = readHugepageSizes(filepath.Join(root, "sys/kernel/mm/hugepages")); err != nil {
		return Host{}, err
	}
	if host.CgroupV2 {
		host.SwapController = exists(root, "proc/swaps") && anyExists(root, "sys/fs/cgroup/*/memory.swap.max")
	} else {
		host.SwapController = exists(root, "sys/fs/cgroup/memory/memory.memsw.limit_in_bytes")
	}
	paths, err := filepath.Glob(filepath.Join(root, "sys/devices/system/cpu/cpu*/thermal_throttle"))
	if err != nil {
		return Host{}, fmt.Errorf("find the CPUs' thermal throttling counters: %w", err)
	}
	for _, path := range paths {
		inside, err := filepath.Rel(root, path)
		if err != nil {
			return Host{}, fmt.Errorf("find the CPUs' thermal throttling counters: %w", err)
		}
		host.ThermalThrottle = append(host.ThermalThrottle, "/"+inside)
	}
	return host, nil
}

func exists(root, path string) bool {
	_, err := os.Stat(filepath.Join(root, path))
	return err == nil
}

func anyExists(root, pattern string) bool {
	paths, err := filepath.Glob(filepath.Join(root, pattern))
	return err == nil && len(paths) > 0
}

// readMemory reads the total memory and swap, in bytes.
func readMemory(path string) (memory, swap int64, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, fmt.Errorf("read the memory size: %w", err)
	}
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		var total *int64
		switch fields[0] {
		case "MemTotal:":
			total = &memory
		case "SwapTotal:":
			total = &swap
		default:
			continue
		}
		kib, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("read %s from %s: %w", fields[0], path, err)
		}
		*total = kib << 10
	}
	if memory == 0 {
		return 0, 0, fmt.Errorf("read the memory size: %s does not have MemTotal", path)
	}
	return memory, swap, nil
}

// readHugepageSizes lists the kernel's "hugepages-<n>kB" directories.
func readHugepageSizes(directory string) ([]string, error) {
	entries, err := os.ReadDir(directory)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the huge page sizes: %w", err)
	}
	var sizes []string
	for _, entry := range entries {
		number := strings.TrimSuffix(strings.TrimPrefix(entry.Name(), "hugepages-"), "kB")
		kib, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read the huge page sizes: unexpected %s in %s", entry.Name(), directory)
		}
		sizes = append(sizes, hugepageSize(kib<<10))
	}
	return sizes, nil
}

// hugepageSize returns a size in bytes in the notation of cgroups: "2MB" for 2
// MiB.
func hugepageSize(bytes int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB", "PB"}
	for bytes%1024 == 0 && bytes > 0 && len(units) > 1 {
		bytes, units = bytes/1024, units[1:]
	}
	return strconv.FormatInt(bytes, 10) + units[0]
}
