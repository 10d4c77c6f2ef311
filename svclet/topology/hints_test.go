package topology

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// hints reads "01* 23": sets of nodes, with a star if they are preferred. "-" is no
// preference, "none" no possible set.
func hints(t *testing.T, text string) Hints {
	t.Helper()
	if text == "" {
		return nil
	}
	var list []Hint
	if text == "none" {
		list = []Hint{}
	}
	for word := range strings.FieldsSeq(text) {
		if word == "-" || word == "none" {
			continue
		}
		nodes, preferred := strings.CutSuffix(word, "*")
		var m Mask
		for _, node := range nodes {
			m |= NewMask(int(node - '0'))
		}
		list = append(list, Hint{m, preferred})
	}
	return Hints{"r": list}
}

func TestHintsAreMergedByPolicy(t *testing.T) {
	for _, test := range []struct {
		name      string
		providers []string
		// The nodes and whether they are preferred, by policy.
		bestEffort, restricted, single string
	}{
		{"no providers", nil, "0,1,2,3 true", "0,1,2,3 true", " true"},
		{"no preference", []string{"-", ""}, "0,1,2,3 true", "0,1,2,3 true", " true"},
		{"one provider", []string{"0* 1* 01"}, "0 true", "0 true", "0 true"},
		{"agreeing", []string{"0* 1* 01", "1* 01"}, "1 true", "1 true", "1 true"},
		{"contradicting", []string{"0*", "1*"}, "0,1,2,3 false", "refused", "refused"},
		{"overlapping and not preferred", []string{"0* 01", "1* 01"}, "0 false", "refused", "refused"},
		{"two nodes are needed", []string{"01* 23*", "01* 23*"}, "0,1 true", "0,1 true", "refused"},
		{"one that cannot", []string{"0* 1*", "none"}, "0 false", "refused", "refused"},
		{"the size that fits is better than a smaller one", []string{"01 012", "12 01"}, "0,1 false", "refused", "refused"},
	} {
		for policy, want := range map[Policy]string{BestEffort: test.bestEffort, Restricted: test.restricted, SingleNUMANode: test.single} {
			var all []Hints
			for _, provider := range test.providers {
				all = append(all, hints(t, provider))
			}
			best, admit := Merger{Policy: policy, Nodes: []int{0, 1, 2, 3}}.Merge(all)
			got := fmt.Sprintf("%s %t", best.Nodes, best.Preferred)
			if !admit {
				got = "refused"
			}
			if got != want {
				t.Errorf("%s, %s: %s, want %s", test.name, policy, got, want)
			}
		}
	}
	if best, admit := (Merger{Policy: None, Nodes: []int{0, 1}}).Merge([]Hints{hints(t, "none")}); !admit || best.Nodes != 0 {
		t.Errorf("none: %v, %t", best, admit)
	}
}

func TestCloserNodesArePreferredOnRequest(t *testing.T) {
	// Nodes 0 and 1 are on one socket, 2 and 3 on the other.
	distance := map[int][]int{0: {10, 12, 32, 32}, 1: {12, 10, 32, 32}, 2: {32, 32, 10, 12}, 3: {32, 32, 12, 10}}
	provider := []Hints{hints(t, "02* 23*")}
	for closest, want := range map[bool]string{false: "0,2", true: "2,3"} {
		best, _ := Merger{Policy: BestEffort, Nodes: []int{0, 1, 2, 3}, Closest: closest, Distance: distance}.Merge(provider)
		if best.Nodes.String() != want {
			t.Errorf("closest %t: %s, want %s", closest, best.Nodes, want)
		}
	}
}

func TestTheTopologyIsReadFromSysfs(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("proc/meminfo", "MemTotal:        2048 kB")
	write("sys/devices/system/cpu/online", "0-3")
	flat, err := Read(root)
	if err != nil {
		t.Fatal(err)
	}
	if flat.Count(Core) != 4 || flat.Count(Node) != 1 || flat.Memory[0].Total != 2<<20 {
		t.Errorf("without NUMA: %+v", flat)
	}
	for cpu := range 4 {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/", cpu)
		write(dir+"thread_siblings_list", fmt.Sprintf("%d,%d", cpu%2, cpu%2+2))
		write(dir+"physical_package_id", fmt.Sprint(cpu%2))
	}
	for node := range 2 {
		dir := fmt.Sprintf("sys/devices/system/node/node%d/", node)
		write(dir+"cpulist", fmt.Sprintf("%d,%d", node, node+2))
		write(dir+"meminfo", fmt.Sprintf("Node %d MemTotal:       %d kB\nNode %d MemFree: 1 kB", node, 1024*(node+1), node))
		write(dir+"distance", []string{"10 21", "21 10"}[node])
		write(dir+"hugepages/hugepages-2048kB/nr_hugepages", fmt.Sprint(node*3))
	}
	read, err := Read(root)
	if err != nil {
		t.Fatal(err)
	}
	if read.Count(Core) != 2 || read.ThreadsPerCore() != 2 || read.Count(Socket) != 2 || read.CPUs[3] != (CPU{Core: 1, Socket: 1, Node: 1}) {
		t.Errorf("CPUs %v", read.CPUs)
	}
	if m := read.Memory[1]; m.Total != 2<<20 || m.HugePages[2<<20] != 6<<20 || len(read.Memory[0].HugePages) != 0 || read.Distance[1][0] != 21 {
		t.Errorf("memory %v, distances %v", read.Memory, read.Distance)
	}
	write("sys/devices/system/cpu/online", "0-x")
	if _, err := Read(root); err == nil || !strings.Contains(err.Error(), "cpu/online") {
		t.Errorf("a file that is not a list: %v", err)
	}
}
