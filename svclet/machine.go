package svclet

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/cgroup"
	"svc.dev/svc/svclet/node"
	"svc.dev/svc/svclet/nodeconfig"
)

// makeCgroups makes the cgroups of pods.
func (a *Agent) makeCgroups() error {
	c := a.Configuration
	var err error
	if a.machine, err = node.ReadMachine("/", a.RootDir); err != nil {
		return err
	}
	if !ptr.Deref(c.LocalStorageCapacityIsolation, true) {
		a.machine.Storage = 0 // so that the node does not count it
	}
	reserved, err := nodeconfig.ParseReservations(c)
	if err != nil {
		return err
	}
	o := cgroup.Options{
		Root: c.CgroupRoot, MakeRoot: a.MakeCgroupRoot, PerQOS: *c.CgroupsPerQOS, Driver: cgroup.Driver(c.CgroupDriver), PodMaxPIDs: *c.PodPidsLimit,
		CPU:          cgroup.CPUQuota{Enforce: *c.CPUCFSQuota, Period: c.CPUCFSQuotaPeriod.Duration},
		Capacity:     capacity(a.machine),
		KubeReserved: reserved.Agent, SystemReserved: reserved.System,
		KubeReservedCgroup: c.KubeReservedCgroup, SystemReservedCgroup: c.SystemReservedCgroup,
		Enforce: c.EnforceNodeAllocatable,
	}
	if o.QOSReserved, err = nodeconfig.ParseQOSReserved(c.QOSReserved); err != nil {
		return err
	}
	manager, err := cgroup.New(o)
	if err != nil {
		return err
	}
	if err := manager.Start(); err != nil {
		return err
	}
	a.pods.cgroups = manager
	a.parts = append(a.parts, func(ctx context.Context) { a.enforce(ctx, manager) })
	if o.QOSReserved != 0 {
		a.parts = append(a.parts, a.pods.shareAgain)
	}
	return nil
}

// makeSystemCgroup makes what keeps the processes of the system in a cgroup, if
// one is named.
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

// enforceAgain is the time between two attempts to bound what pods use
// together: the kernel refuses while they use more.
const enforceAgain = time.Minute

// enforce bounds what pods use together.
func (a *Agent) enforce(ctx context.Context, manager *cgroup.Manager) {
	for manager.Enforce(a.pods.events.Node) != nil {
		select {
		case <-ctx.Done():
			return
		case <-a.clock.After(enforceAgain):
		}
	}
}

// capacity is what the machine has, as far as cgroups can bound it.
func capacity(m node.Machine) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(m.CPUs), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(m.Memory, resource.BinarySI),
	}
}
