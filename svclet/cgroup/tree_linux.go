package cgroup

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/fscommon"
	"github.com/opencontainers/cgroups/manager"
	"k8s.io/utils/clock"
)

// unified is the mount point of cgroup v2.
const unified = "/sys/fs/cgroup"

// host are the cgroups of this machine.
type host struct {
	driver Driver
	clock  clock.Clock
	v2     bool
	// hierarchies are those of Options.
	hierarchies map[string]string
	// mounts are the mount points of the hierarchies without duplicates; needed are
	// those in which every cgroup must exist.
	mounts, needed []string
	// hugetlb reports whether huge pages can be limited; sizes are the page sizes in
	// the notation of cgroups.
	hugetlb bool
	// limitsPIDs reports whether process IDs can be limited.
	limitsPIDs bool
	sizes      map[int64]string
}

func (h *host) exists(cgroup string) error {
	for _, mount := range h.needed {
		if _, err := os.Stat(filepath.Join(mount, cgroup)); err != nil {
			return err
		}
	}
	return nil
}

func (h *host) apply(n name, limits Limits) error {
	m, resources, err := h.manager(n, limits)
	if err != nil {
		return err
	}
	// PID -1 creates the cgroup without a process.
	if err := m.Apply(-1); err != nil {
		return err
	}
	return m.Set(resources)
}

func (h *host) set(n name, limits Limits) error {
	m, resources, err := h.manager(n, limits)
	if err != nil {
		return err
	}
	return m.Set(resources)
}

func (h *host) manager(n name, limits Limits) (cgroups.Manager, *cgroups.Resources, error) {
	resources := h.resources(limits)
	config := &cgroups.Cgroup{Systemd: h.driver == Systemd, Resources: resources}
	if config.Systemd {
		// systemd needs the unit and its slice.
		parent, unit := path.Split(h.driver.path(n))
		config.Name, config.Parent = unit, path.Base(parent)
		if parent == "/" {
			config.Parent = "-.slice"
		}
	} else {
		config.Path = h.driver.path(n)
	}
	if h.hierarchies != nil {
		m, err := fs.NewManager(config, h.paths(n))
		return m, resources, err
	}
	m, err := manager.New(config)
	return m, resources, err
}

func (h *host) resources(limits Limits) *cgroups.Resources {
	resources := &cgroups.Resources{SkipDevices: true, SkipFreezeOnSet: true, CpusetCpus: limits.CPUs}
	if h.limitsPIDs {
		resources.PidsLimit = limits.PIDs
	}
	if h.v2 && len(limits.Protected) > 0 {
		resources.Unified = map[string]string{}
		for file, bytes := range limits.Protected {
			resources.Unified[file] = strconv.FormatInt(bytes, 10)
		}
	}
	if limits.Memory != nil {
		resources.Memory = *limits.Memory
	}
	if limits.Shares != nil {
		if h.v2 {
			resources.CpuWeight = weight(*limits.Shares)
		} else {
			resources.CpuShares = *limits.Shares
		}
	}
	if limits.Quota != nil {
		resources.CpuQuota = *limits.Quota
	}
	if limits.Period != nil {
		resources.CpuPeriod = *limits.Period
	}
	if h.hugetlb && limits.Hugepages != nil {
		for size, name := range h.sizes {
			resources.HugetlbLimit = append(resources.HugetlbLimit,
				&cgroups.HugepageLimit{Pagesize: name, Limit: uint64(limits.Hugepages[size])})
		}
	}
	return resources
}

func (h *host) directories(cgroup string) ([]string, error) {
	var names []string
	for _, mount := range h.mounts {
		entries, err := os.ReadDir(filepath.Join(mount, cgroup))
		if errors.Is(err, iofs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			if entry.IsDir() && !slices.Contains(names, entry.Name()) {
				names = append(names, entry.Name())
			}
		}
	}
	return names, nil
}

// killWait is the polling period while killed processes exit.
const killWait = 5 * time.Millisecond

func (h *host) kill(ctx context.Context, n name) error {
	for {
		pids, err := h.pids(n)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill process %d: %w", pid, err)
			}
		}
		select {
		case <-h.clock.After(killWait):
		case <-ctx.Done():
			return fmt.Errorf("%d processes are left: %w", len(pids), ctx.Err())
		}
	}
}

// pids returns the processes in a cgroup and below it, in any of the hierarchies.
func (h *host) pids(n name) ([]int, error) {
	var all []int
	for _, mount := range h.mounts {
		directory := filepath.Join(mount, h.driver.path(n))
		if !cgroups.PathExists(directory) {
			continue
		}
		pids, err := cgroups.GetAllPids(directory)
		if err != nil {
			return nil, err
		}
		all = append(all, pids...)
	}
	// A process of another PID namespace has PID 0, and kill(0) would kill the agent.
	all = slices.DeleteFunc(all, func(pid int) bool { return pid <= 1 })
	slices.Sort(all)
	return slices.Compact(all), nil
}

func (h *host) remove(n name) error {
	if h.absent(n) {
		return nil
	}
	m, _, err := h.manager(n, Limits{})
	if err != nil {
		return err
	}
	return m.Destroy()
}

func (h *host) absent(n name) bool {
	for _, mount := range h.mounts {
		if cgroups.PathExists(filepath.Join(mount, h.driver.path(n))) {
			return false
		}
	}
	return true
}

func (h *host) memory(n name) (used, workingSet int64, err error) {
	m, _, err := h.manager(n, Limits{})
	if err != nil {
		return 0, 0, err
	}
	stats, err := m.Stats(&cgroups.StatsOptions{Controllers: cgroups.Memory})
	if err != nil {
		return 0, 0, err
	}
	memory := stats.MemoryStats
	if len(memory.Stats) == 0 {
		return 0, 0, fmt.Errorf("the cgroup %s has no statistics of memory", h.driver.path(n))
	}
	inactive := memory.Stats["total_inactive_file"]
	if h.v2 {
		inactive = memory.Stats["inactive_file"]
	}
	used = int64(min(memory.Usage.Usage, math.MaxInt64))
	return used, max(used-int64(min(inactive, math.MaxInt64)), 0), nil
}

func (h *host) memoryLimit(n name) (int64, error) {
	m, _, err := h.manager(n, Limits{})
	if err != nil {
		return 0, err
	}
	file := "memory.limit_in_bytes"
	if h.v2 {
		file = "memory.max"
	}
	limit, err := fscommon.GetCgroupParamUint(m.Path("memory"), file)
	return int64(min(limit, math.MaxInt64)), err
}

func (h *host) hugepageSizes() []int64 {
	var sizes []int64
	for size := range h.sizes {
		sizes = append(sizes, size)
	}
	return sizes
}

// cpus are set in systemd on cgroup v2 only: it disables the cpuset controller of
// a cgroup unless the unit uses it.
func (h *host) cpus() (string, error) {
	if !h.v2 || h.driver != Systemd {
		return "", nil
	}
	list, err := os.ReadFile(filepath.Join(unified, "cpuset.cpus.effective"))
	if err != nil {
		return "", fmt.Errorf("find the CPUs: %w", err)
	}
	return strings.TrimSpace(string(list)), nil
}
