package stats

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"
)

// machine reads cgroups and /proc.
type machine struct {
	root    string
	unified bool // cgroup v2
}

func newMachine(root string) machine {
	_, err := os.Stat(filepath.Join(root, "sys/fs/cgroup/cgroup.controllers"))
	return machine{root: root, unified: err == nil}
}

// usage is the usage of a cgroup. Sizes are in bytes.
type usage struct {
	cpu                         uint64 // nanoseconds
	memory, workingSet, rss     uint64
	pageFaults, majorPageFaults uint64
	limit                       uint64 // of memory; MaxUint64 for none
	swap, swapLimit             uint64
	cpuPSI, memoryPSI, ioPSI    *statsapi.PSIStats
}

// cgroup reads the usage of a cgroup; "/" is the whole machine.
func (m machine) cgroup(name string) (usage, error) {
	if m.unified {
		return m.unifiedCgroup(name)
	}
	var u usage
	var err error
	if u.cpu, err = m.number("sys/fs/cgroup/cpuacct", name, "cpuacct.usage"); err != nil {
		return u, err
	}
	if u.memory, err = m.number("sys/fs/cgroup/memory", name, "memory.usage_in_bytes"); err != nil {
		return u, err
	}
	if u.limit, err = m.number("sys/fs/cgroup/memory", name, "memory.limit_in_bytes"); err != nil {
		return u, err
	}
	detail, err := m.table("sys/fs/cgroup/memory", name, "memory.stat")
	if err != nil {
		return u, err
	}
	u.workingSet = less(u.memory, detail["total_inactive_file"])
	u.rss, u.swap = detail["total_rss"], detail["total_swap"]
	u.pageFaults, u.majorPageFaults = detail["total_pgfault"], detail["total_pgmajfault"]
	return u, m.ofRoot(name, &u)
}

// tasks reads the number of tasks in a cgroup and below it.
func (m machine) tasks(name string) (uint64, error) {
	at := "sys/fs/cgroup/pids"
	if m.unified {
		at = "sys/fs/cgroup"
	}
	return m.number(at, name, "pids.current")
}

func (m machine) unifiedCgroup(name string) (usage, error) {
	const at = "sys/fs/cgroup"
	var u usage
	times, err := m.table(at, name, "cpu.stat")
	if err != nil {
		return u, err
	}
	u.cpu = times["usage_usec"] * 1000
	detail, err := m.table(at, name, "memory.stat")
	if err != nil {
		return u, err
	}
	if name != "/" { // the root cgroup has neither
		if u.memory, err = m.number(at, name, "memory.current"); err != nil {
			return u, err
		}
		if u.limit, err = m.number(at, name, "memory.max"); err != nil {
			return u, err
		}
		if u.swap, err = m.number(at, name, "memory.swap.current"); err != nil && !os.IsNotExist(err) {
			return u, err
		}
	}
	if err := m.ofRoot(name, &u); err != nil {
		return u, err
	}
	u.workingSet = less(u.memory, detail["inactive_file"])
	u.rss = detail["anon"]
	u.pageFaults, u.majorPageFaults = detail["pgfault"], detail["pgmajfault"]
	u.cpuPSI, u.memoryPSI, u.ioPSI = m.pressure(name, "cpu"), m.pressure(name, "memory"), m.pressure(name, "io")
	return u, nil
}

// ofRoot sets what the root cgroup does not have for the machine.
func (m machine) ofRoot(name string, u *usage) error {
	if name != "/" {
		return nil
	}
	info, err := m.table("proc", "", "meminfo")
	if err != nil {
		return err
	}
	const kilo = 1024
	u.limit = info["MemTotal:"] * kilo
	u.swapLimit = info["SwapTotal:"] * kilo
	u.swap = less(info["SwapTotal:"], info["SwapFree:"]) * kilo
	if m.unified {
		u.memory = less(info["MemTotal:"], info["MemFree:"]) * kilo
	}
	return nil
}

// pressure reads a pressure stall information file; nil if the kernel has none.
func (m machine) pressure(name, kind string) *statsapi.PSIStats {
	data, err := os.ReadFile(m.path("sys/fs/cgroup", name, kind+".pressure"))
	if os.IsNotExist(err) && name == "/" {
		data, err = os.ReadFile(m.path("proc/pressure", "", kind))
	}
	if err != nil {
		return nil
	}
	s := &statsapi.PSIStats{}
	for line := range strings.Lines(string(data)) {
		var d statsapi.PSIData
		var which string
		if _, err := fmt.Sscanf(line, "%s avg10=%g avg60=%g avg300=%g total=%d", &which, &d.Avg10, &d.Avg60, &d.Avg300, &d.Total); err != nil {
			continue
		}
		if which == "full" {
			s.Full = d
		} else {
			s.Some = d
		}
	}
	return s
}

// network reads the counters of the machine's own interfaces, without those of
// pods and the loopback.
func (m machine) network(now time.Time) (*statsapi.NetworkStats, error) {
	data, err := os.ReadFile(m.path("proc", "net", "dev"))
	if err != nil {
		return nil, err
	}
	n := &statsapi.NetworkStats{Time: metav1.NewTime(now)}
	for line := range strings.Lines(string(data)) {
		name, counters, ok := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		fields := strings.Fields(counters)
		if !ok || len(fields) < 11 || name == "lo" || strings.HasPrefix(name, "veth") || strings.HasPrefix(name, "docker") {
			continue
		}
		each := statsapi.InterfaceStats{
			Name: name, RxBytes: parse(fields[0]), RxErrors: parse(fields[2]), TxBytes: parse(fields[8]), TxErrors: parse(fields[10]),
		}
		n.Interfaces = append(n.Interfaces, each)
		if n.Name == "" || name == "eth0" {
			n.InterfaceStats = each
		}
	}
	return n, nil
}

// processes reads the number of tasks and its limit.
func (m machine) processes(now time.Time) (*statsapi.RlimitStats, error) {
	most, err := m.number("proc/sys/kernel", "", "pid_max")
	if err != nil {
		return nil, err
	}
	if threads, err := m.number("proc/sys/kernel", "", "threads-max"); err == nil {
		most = min(most, threads)
	}
	load, err := os.ReadFile(m.path("proc", "", "loadavg"))
	if err != nil {
		return nil, err
	}
	r := &statsapi.RlimitStats{Time: metav1.NewTime(now), MaxPID: ptr.To(signed(most))}
	if fields := strings.Fields(string(load)); len(fields) > 3 {
		_, total, _ := strings.Cut(fields[3], "/")
		if n := parse(total); n != nil {
			r.NumOfRunningProcesses = ptr.To(signed(*n))
		}
	}
	return r, nil
}

// booted returns the boot time of the machine.
func (m machine) booted() (time.Time, error) {
	info, err := m.table("proc", "", "stat")
	if err != nil {
		return time.Time{}, err
	}
	return time.Unix(signed(info["btime"]), 0), nil
}

func (m machine) path(at, name, file string) string {
	return filepath.Join(m.root, at, name, file)
}

// number reads a file with one number; "max" is the largest.
func (m machine) number(at, name, file string) (uint64, error) {
	data, err := os.ReadFile(m.path(at, name, file))
	if err != nil {
		return 0, err
	}
	text := string(bytes.TrimSpace(data))
	if text == "max" {
		return math.MaxUint64, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", m.path(at, name, file), err)
	}
	return n, nil
}

// table reads a file of lines that consist of a name and a number.
func (m machine) table(at, name, file string) (map[string]uint64, error) {
	data, err := os.ReadFile(m.path(at, name, file))
	if err != nil {
		return nil, err
	}
	t := map[string]uint64{}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) >= 2 {
			if n := parse(fields[1]); n != nil {
				t[fields[0]] = *n
			}
		}
	}
	return t, nil
}

func parse(text string) *uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

// less subtracts counters that were read at different moments: never below zero.
func less(a, b uint64) uint64 {
	if b > a {
		return 0
	}
	return a - b
}

func signed(n uint64) int64 {
	return int64(min(n, math.MaxInt64)) //nolint:gosec // it fits now
}
