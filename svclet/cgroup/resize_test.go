package cgroup

import (
	"cmp"
	"strings"
	"testing"
)

// TestAPodsMemoryIsNotLimitedBelowWhatItUses: the kernel would kill its processes. What a file
// cache holds does not count: the kernel reclaims it.
func TestAPodsMemoryIsNotLimitedBelowWhatItUses(t *testing.T) {
	small := testPod("u", guaranteed("cpu", "1", "memory", "1000"))
	kept := false
	create := func(m *Manager) (err error) {
		kept, err = m.Create(small)
		return err
	}
	shrink := func(m *Manager) error {
		if err := m.MemorySuffices(small); err != nil {
			return err
		}
		return m.Resize(small, nil)
	}
	grow := func(m *Manager) error { return m.Resize(small, testPod("u", guaranteed("cpu", "1", "memory", "500"))) }
	const path = "/kubepods/podu"
	for _, test := range []struct {
		name       string
		do         func(*Manager) error
		used       int64
		limit      int64 // that the cgroup has; by default a higher one
		unmeasured bool
		missing    string
		step, err  string
		kept       bool
	}{
		{name: "an agent that starts sets a limit that suffices", do: create, used: 1100, step: "apply /kubepods/podu shares=1024 memory=1000"},
		{name: "and leaves one that is exceeded as it is", do: create, used: 1101, step: "apply /kubepods/podu shares=1024", kept: true},
		{name: "also without statistics", do: create, unmeasured: true, step: "apply /kubepods/podu shares=1024", kept: true},
		{name: "which the same limit does not need", do: create, limit: 1000, unmeasured: true, step: "apply /kubepods/podu shares=1024 memory=1000"},
		{name: "a new cgroup has no statistics", do: create, unmeasured: true, missing: path, step: "apply /kubepods/podu shares=1024 memory=1000"},
		{name: "a resize sets a limit that suffices", do: shrink, used: 1100, step: "set /kubepods/podu shares=1024 memory=1000"},
		{name: "and refuses one that is exceeded", do: shrink, used: 1101, err: "attempting to set the memory limit of the pod (1000) below current usage (1001)"},
		{name: "also without statistics of the pod", do: shrink, unmeasured: true, err: "missing memory usage"},
		{name: "which a limit that stays does not need", do: shrink, limit: 1000, unmeasured: true, step: "set /kubepods/podu shares=1024 memory=1000"},
		{name: "nor one that is raised", do: shrink, limit: 999, unmeasured: true, step: "set /kubepods/podu shares=1024 memory=1000"},
		{name: "nor while others are raised", do: grow, limit: 500, unmeasured: true, step: "set /kubepods/podu shares=1024 memory=1000"},
		{name: "a limit that is exceeded is not raised to", do: grow, used: 1101, step: "set /kubepods/podu shares=1024"},
		{name: "another one is", do: grow, used: 1100, step: "set /kubepods/podu shares=1024 memory=1000"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tree := &recorded{driver: Cgroupfs, used: map[string]int64{path: test.used}, reclaimable: 100, unmeasured: test.unmeasured, missing: test.missing,
				limit: cmp.Or(test.limit, 2000)}
			kept = false
			err := test.do(newManager(Options{PerQOS: true, Driver: Cgroupfs}, tree))
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("%v, want %s", err, test.err)
			}
			if kept != test.kept {
				t.Errorf("it has kept a limit: %t", kept)
			}
			var steps []string
			if test.step != "" {
				steps = []string{test.step}
			}
			tree.expect(t, "steps", steps...)
		})
	}
	tree := &recorded{driver: Cgroupfs, unmeasured: true, limit: 2000}
	if err := newManager(Options{PerQOS: true, Driver: Cgroupfs}, tree).MemorySuffices(testPod("u", burstable("cpu", "1"))); err != nil {
		t.Errorf("a pod without a limit: %v", err)
	}
}
