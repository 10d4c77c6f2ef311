package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
)

// Read reads the topology from sysfs and procfs below root ("/"). A kernel without
// NUMA has one node, and a CPU without topology is a core of its own.
func Read(root string) (*Topology, error) {
	sys := filepath.Join(root, "sys/devices/system")
	online, err := readCPUs(filepath.Join(sys, "cpu/online"))
	if err != nil {
		return nil, err
	}
	t := &Topology{CPUs: map[int]CPU{}, Memory: map[int]Memory{}, Distance: map[int][]int{}}
	for _, cpu := range online.List() {
		if t.CPUs[cpu], err = readCPU(filepath.Join(sys, "cpu", fmt.Sprintf("cpu%d", cpu), "topology"), cpu, online); err != nil {
			return nil, err
		}
	}
	nodes, err := filepath.Glob(filepath.Join(sys, "node/node[0-9]*"))
	if err != nil {
		return nil, err
	}
	for _, dir := range nodes {
		if err := t.readNode(dir); err != nil {
			return nil, err
		}
	}
	if len(nodes) == 0 {
		t.Memory[0], err = readMemory(filepath.Join(root, "proc/meminfo"), "MemTotal:", filepath.Join(root, "sys/kernel/mm/hugepages"))
	}
	return t, err
}

// readNode reads one NUMA node.
func (t *Topology) readNode(dir string) error {
	node, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "node"))
	if err != nil || node >= MaxNodes {
		return fmt.Errorf("%s: invalid NUMA node: must be below %d", dir, MaxNodes)
	}
	cpus, err := readCPUs(filepath.Join(dir, "cpulist"))
	if err != nil {
		return err
	}
	for _, cpu := range cpus.UnsortedList() {
		if at, online := t.CPUs[cpu]; online {
			at.Node = node
			t.CPUs[cpu] = at
		}
	}
	if t.Memory[node], err = readMemory(filepath.Join(dir, "meminfo"), fmt.Sprintf("Node %d MemTotal:", node), filepath.Join(dir, "hugepages")); err != nil {
		return err
	}
	text, err := read(filepath.Join(dir, "distance"))
	for word := range strings.FieldsSeq(text) {
		distance, err := strconv.Atoi(word)
		if err != nil {
			return fmt.Errorf("%s/distance: %w", dir, err)
		}
		t.Distance[node] = append(t.Distance[node], distance)
	}
	return err
}

// readCPU reads where a CPU is.
func readCPU(dir string, cpu int, online cpuset.CPUSet) (CPU, error) {
	at := CPU{Core: cpu}
	threads, err := readCPUs(filepath.Join(dir, "thread_siblings_list"))
	if err != nil {
		return at, err
	}
	if threads = threads.Intersection(online); !threads.IsEmpty() {
		at.Core = slices.Min(threads.UnsortedList())
	}
	socket, err := read(filepath.Join(dir, "physical_package_id"))
	if err != nil || socket == "" || socket == "-1" {
		return at, err
	}
	if at.Socket, err = strconv.Atoi(socket); err != nil {
		return at, fmt.Errorf("%s/physical_package_id: %w", dir, err)
	}
	return at, nil
}

// readMemory reads the memory of a node or machine from the line of a meminfo file that
// begins with total, and its huge pages from a directory.
func readMemory(meminfo, total, hugepages string) (Memory, error) {
	m := Memory{HugePages: map[int64]int64{}}
	text, err := read(meminfo)
	if err != nil {
		return m, err
	}
	for line := range strings.Lines(text) {
		rest, found := strings.CutPrefix(line, total)
		if !found {
			continue
		}
		kilobytes, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
		if err != nil {
			return m, fmt.Errorf("%s: %w", meminfo, err)
		}
		m.Total = kilobytes << 10
	}
	sizes, err := filepath.Glob(filepath.Join(hugepages, "hugepages-*kB"))
	if err != nil {
		return m, err
	}
	for _, dir := range sizes {
		kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(dir), "hugepages-"), "kB"), 10, 64)
		if err != nil {
			return m, fmt.Errorf("%s: %w", dir, err)
		}
		text, err := read(filepath.Join(dir, "nr_hugepages"))
		if err != nil {
			return m, err
		}
		count, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return m, fmt.Errorf("%s: %w", dir, err)
		}
		if count > 0 {
			m.HugePages[kilobytes<<10] = count * kilobytes << 10
		}
	}
	return m, nil
}

// readCPUs reads a list of CPUs, empty if there is no such file.
func readCPUs(path string) (cpuset.CPUSet, error) {
	text, err := read(path)
	if err != nil {
		return cpuset.New(), err
	}
	set, err := cpuset.Parse(text)
	if err != nil {
		return cpuset.New(), fmt.Errorf("%s: %w", path, err)
	}
	return set, nil
}

// read returns the trimmed content of a file, empty if it does not exist.
func read(path string) (string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}
