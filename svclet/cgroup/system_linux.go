package cgroup

import (
	"path/filepath"
	"slices"

	"github.com/opencontainers/cgroups"
	"k8s.io/utils/clock"
)

// inRoot are the processes of the root cgroup and their destination.
type inRoot struct {
	directories []string // of the destination, in each required hierarchy
	to          cgroups.Manager
}

// newProcesses returns the processes of root, to be moved to another cgroup.
func newProcesses(c clock.Clock, root, to name) (processes, error) {
	// Names are those of cgroupfs, as in kubelet; systemd is not used.
	h, err := newHost(Options{Driver: Cgroupfs, Clock: c})
	if err != nil {
		return nil, err
	}
	manager, _, err := h.manager(to, Limits{})
	if err != nil {
		return nil, err
	}
	found := &inRoot{to: manager}
	for _, mount := range h.needed {
		found.directories = append(found.directories, filepath.Join(mount, h.driver.path(root)))
	}
	return found, nil
}

// list returns the processes that are in the root of every hierarchy. On cgroup
// v1, kubelet checks only the devices hierarchy, and so moves processes out of
// limits in others.
func (r *inRoot) list() ([]int, error) {
	var all []int
	for i, directory := range r.directories {
		pids, err := cgroups.GetPids(directory)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			all = pids
			continue
		}
		slices.Sort(pids)
		all = slices.DeleteFunc(all, func(pid int) bool {
			_, here := slices.BinarySearch(pids, pid)
			return !here
		})
	}
	return all, nil
}

func (r *inRoot) makeCgroup() error { return r.to.Apply(-1) }

func (r *inRoot) move(pid int) error { return r.to.Apply(pid) }
