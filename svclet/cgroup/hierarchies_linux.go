package cgroup

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
	"k8s.io/apimachinery/pkg/api/resource"
)

// used returns the controllers that are required.
func used() []string {
	return []string{"cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb"}
}

func newTree(o Options) (tree, error) { return newHost(o) }

func newHost(o Options) (*host, error) {
	h := &host{driver: o.Driver, clock: o.Clock, v2: o.Hierarchies == nil && cgroups.IsCgroup2UnifiedMode(), hierarchies: o.Hierarchies, sizes: map[int64]string{}}
	for _, size := range cgroups.HugePageSizes() {
		// "2MB" means 2 MiB.
		bytes, err := resource.ParseQuantity(strings.TrimSuffix(size, "B") + "i")
		if err != nil {
			return nil, fmt.Errorf("size %q of huge pages: %w", size, err)
		}
		h.sizes[bytes.Value()] = size
	}
	if h.v2 {
		controllers, err := cgroups.GetAllSubsystems()
		if err != nil {
			return nil, fmt.Errorf("find the controllers of cgroup v2: %w", err)
		}
		h.mounts, h.needed = []string{unified}, []string{unified}
		h.hugetlb, h.limitsPIDs = slices.Contains(controllers, "hugetlb"), slices.Contains(controllers, pidsController)
		return h, h.checkPIDs(&o)
	}
	points := o.Hierarchies
	if points == nil {
		var err error
		if points, err = mountPoints(); err != nil {
			return nil, err
		}
	}
	h.mounts = slices.Compact(slices.Sorted(maps.Values(points)))
	for _, controller := range used() {
		if point := points[controller]; point != "" {
			h.needed = append(h.needed, point)
		}
	}
	if len(h.needed) == 0 {
		return nil, errors.New("no cgroups are mounted")
	}
	_, h.hugetlb = points["hugetlb"]
	_, h.limitsPIDs = points[pidsController]
	return h, h.checkPIDs(&o)
}

const pidsController = "pids"

// checkPIDs returns an error if limits of process IDs are configured that the machine cannot
// enforce. That of the machine's own number is left out there.
func (h *host) checkPIDs(o *Options) error {
	_, kube := o.KubeReserved[PIDs]
	_, system := o.SystemReserved[PIDs]
	if h.limitsPIDs || o.PodMaxPIDs <= 0 && !kube && !system {
		return nil
	}
	return errors.New("limits of process IDs are configured (podPidsLimit, kubeReserved or systemReserved), and the cgroup controller pids is not there: mount it, or leave them out")
}

// Directory returns the directory of a cgroup in one of the hierarchies, always the same.
func (d Driver) Directory(cgroup string) (string, error) {
	h, err := newHost(Options{Driver: d})
	if err != nil {
		return "", err
	}
	return filepath.Join(h.needed[0], d.path(Cgroupfs.name(cgroup))), nil
}

// mountPoints returns the mount points of the controllers of cgroup v1.
func mountPoints() (map[string]string, error) {
	mounts, err := cgroups.GetCgroupMounts(true)
	if err != nil {
		return nil, fmt.Errorf("find the mounted cgroups: %w", err)
	}
	// A hierarchy may be mounted twice; the shortest path is the usual one.
	points := map[string]string{}
	for _, mount := range mounts {
		for _, controller := range mount.Subsystems {
			if old := points[controller]; old == "" || len(mount.Mountpoint) < len(old) {
				points[controller] = mount.Mountpoint
			}
		}
	}
	return points, nil
}

// paths returns the directories of a cgroup by the controllers of hierarchies.
func (h *host) paths(n name) map[string]string {
	paths := map[string]string{}
	for controller, point := range h.hierarchies {
		paths[controller] = filepath.Join(point, h.driver.path(n))
	}
	return paths
}
