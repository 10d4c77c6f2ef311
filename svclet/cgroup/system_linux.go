package cgroup

import (
	"path/filepath"
	"slices"

	"github.com/opencontainers/cgroups"
)

// inRoot are the processes of a cgroup of this machine, and what moves them into
// another.
type inRoot struct {
	directories []string // of the cgroup, in each hierarchy in which it has to be
	to          cgroups.Manager
}

// newProcesses are those of root, and are to be in another cgroup.
func newProcesses(root, to name) (processes, error) {
	// systemd is not asked: as in kubelet, names are those of cgroupfs.
	h, err := newHost(Cgroupfs)
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

// list are those that no hierarchy has below the cgroup. Kubelet, on cgroup v1,
// looks at that of devices only, and takes processes out of what bounds them in
// others.
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
