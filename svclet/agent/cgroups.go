package agent

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/svclet/cgroup"
	"svc.dev/svc/svclet/executor"
	"svc.dev/svc/svclet/node"
	"svc.dev/svc/svclet/nodeconfig"
)

// cgroups are the cgroups of pods and of their QoS classes.
type cgroups interface {
	executor.Cgroups
	// Pods returns the pods that have a cgroup.
	Pods() ([]types.UID, error)
	// UpdateClasses divides shares of CPU and reserved memory between the QoS
	// classes.
	UpdateClasses(active []*corev1.Pod) error
}

// enforceRetry is the pause before node allocatable is enforced again: the kernel
// refuses limits below what pods use.
const enforceRetry = time.Minute

// makeCgroups makes the cgroups of pods, the updater of those of QoS classes, and
// what enforces node allocatable.
func (a *Agent) makeCgroups(overridden overrides) (cgroups, *cgroup.QOSUpdater, error) {
	if err := a.makeSystemCgroup(); err != nil {
		return nil, nil, err
	}
	c := a.Configuration
	o := cgroup.Options{
		Root: c.CgroupRoot, MakeRoot: a.MakeCgroupRoot, PerQOS: *c.CgroupsPerQOS, Driver: cgroup.Driver(c.CgroupDriver), PodMaxPIDs: *c.PodPidsLimit,
		CPU:          cgroup.CPUQuota{Enforce: *c.CPUCFSQuota, Period: c.CPUCFSQuotaPeriod.Duration},
		Capacity:     capacity(a.machine),
		KubeReserved: a.reservations.Agent, SystemReserved: a.reservations.System,
		KubeReservedCgroup: c.KubeReservedCgroup, SystemReservedCgroup: c.SystemReservedCgroup,
		Enforce: c.EnforceNodeAllocatable,
	}
	var err error
	if o.QOSReserved, err = nodeconfig.ParseQOSReserved(c.QOSReserved); err != nil {
		return nil, nil, err
	}
	manager, err := cgroup.New(o)
	if err != nil {
		return nil, nil, err
	}
	if err := manager.Start(); err != nil {
		return nil, nil, err
	}
	var all cgroups = manager
	if overridden.cgroups != nil {
		all = overridden.cgroups(all)
	}
	var resync time.Duration
	if o.QOSReserved != 0 {
		resync = enforceRetry
	}
	qos := cgroup.NewQOSUpdater(all.UpdateClasses, a.Clock, resync)
	a.parts = append(a.parts, qos.Run, func(ctx context.Context) { a.enforce(ctx, manager) })
	return all, qos, nil
}

// makeSystemCgroup makes what keeps the processes of the system in a cgroup, if one
// is configured.
func (a *Agent) makeSystemCgroup() error {
	if a.Configuration.SystemCgroups == "" {
		return nil
	}
	system, err := cgroup.NewSystem(a.Configuration.SystemCgroups)
	if err != nil {
		return err
	}
	a.before, a.parts = append(a.before, system.Move), append(a.parts, system.Run)
	return nil
}

// enforce enforces node allocatable.
func (a *Agent) enforce(ctx context.Context, manager *cgroup.Manager) {
	for manager.Enforce(a.events.Node) != nil {
		select {
		case <-ctx.Done():
			return
		case <-a.Clock.After(enforceRetry):
		}
	}
}

// capacity returns what the machine has of the resources that cgroups limit.
func capacity(m node.Machine) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(m.CPUs), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(m.Memory, resource.BinarySI),
	}
}
