package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/cgroup"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/container"
	"svc.dev/svc/svclet/events"
	"svc.dev/svc/svclet/executor"
	"svc.dev/svc/svclet/node"
	"svc.dev/svc/svclet/nodeconfig"
	"svc.dev/svc/svclet/runtime"
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

// newCgroups makes the cgroups of pods, and the updater of those of QoS classes. Its
// tasks keep both in order, and the processes of the system in theirs.
func newCgroups(base common, conn connections, available resources, containers container.Options, o overrides) (cgroups, *cgroup.QOSUpdater, tasks, error) {
	t, err := newSystemCgroup(base.Configuration.SystemCgroups, base.Clock, o)
	if err != nil {
		return nil, nil, tasks{}, err
	}
	options, err := cgroupOptions(base, available, containers)
	if err != nil {
		return nil, nil, tasks{}, err
	}
	manager, err := cgroup.New(options)
	if err != nil {
		return nil, nil, tasks{}, err
	}
	if err := manager.Start(); err != nil {
		return nil, nil, tasks{}, err
	}
	var all cgroups = manager
	if o.cgroups != nil {
		all = o.cgroups(all)
	}
	var resync time.Duration
	if options.QOSReserved != 0 {
		resync = enforceRetry
	}
	qos := cgroup.NewQOSUpdater(all.UpdateClasses, base.Clock, resync)
	t.parts = append(t.parts, qos.Run, func(ctx context.Context) { enforce(ctx, manager, conn.events, base.Clock) })
	return all, qos, t, nil
}

// protection returns how the memory that pods request is protected on cgroup v2.
func protection(base common) cgroup.Protection {
	switch policy := base.Configuration.MemoryReservationPolicy; {
	case !base.MemoryQoS:
		return ""
	case policy == "":
		return cgroup.ProtectAll
	default:
		return cgroup.Protection(policy)
	}
}

// cgroupOptions returns the options of the pods' cgroups, with those that containers have, too.
func cgroupOptions(base common, available resources, containers container.Options) (cgroup.Options, error) {
	c := base.Configuration
	quota := cgroup.CPUQuota{Enforce: *c.CPUCFSQuota, Period: c.CPUCFSQuotaPeriod.Duration}
	if containers.ExclusiveCPUs != nil {
		quota.Exempt = containers.ExclusiveCPUs.PodHasExclusiveCPUs
	}
	reserved, err := nodeconfig.ParseQOSReserved(c.QOSReserved)
	return cgroup.Options{
		Root: c.CgroupRoot, MakeRoot: base.MakeCgroupRoot, PerQOS: *c.CgroupsPerQOS, Driver: cgroup.Driver(c.CgroupDriver), PodMaxPIDs: *c.PodPidsLimit,
		CPU: quota, Protection: containers.Protection,
		Capacity:     capacity(available.machine, maxPIDs("/")),
		KubeReserved: available.reserved.Agent, SystemReserved: available.reserved.System,
		KubeReservedCgroup: c.KubeReservedCgroup, SystemReservedCgroup: c.SystemReservedCgroup,
		Enforce: c.EnforceNodeAllocatable, QOSReserved: reserved, Measured: base.metrics.CgroupOperation, Clock: base.Clock,
	}, err
}

// podsCgroup returns the path of the cgroup of all pods below each hierarchy's mount
// point.
func podsCgroup(c *config.Configuration) string {
	return cgroup.Driver(c.CgroupDriver).PodsPath(c.CgroupRoot, ptr.Deref(c.CgroupsPerQOS, true))
}

// UseCgroupDriver sets the cgroup driver of a configuration to that of the user's container
// runtime if the gate SvcletCgroupDriverFromCRI is on, and so the cgroup that [Lock] locks
// afterwards. It changes nothing if the runtime does not report its driver, or is the agent's
// own, which has the driver of the configuration.
func UseCgroupDriver(ctx context.Context, gates config.Gates, c *config.Configuration) error {
	if !gates.CgroupDriverFromCRI || c.ContainerRuntimeEndpoint == "" {
		return nil
	}
	client, err := runtime.Connect(ctx, runtime.Options{
		RuntimeEndpoint: c.ContainerRuntimeEndpoint, ImageEndpoint: c.ImageServiceEndpoint, RequestTimeout: c.RuntimeRequestTimeout.Duration,
	})
	if err != nil {
		return err
	}
	driver, reported, err := client.CgroupDriver(ctx)
	if err := errors.Join(err, client.Close()); err != nil {
		return err
	}
	if !reported {
		klog.FromContext(ctx).Info("The container runtime does not report its cgroup driver, using cgroupDriver", "cgroupDriver", c.CgroupDriver)
		return nil
	}
	switch driver {
	case runtimeapi.CgroupDriver_SYSTEMD:
		c.CgroupDriver = string(cgroup.Systemd)
	case runtimeapi.CgroupDriver_CGROUPFS:
		c.CgroupDriver = string(cgroup.Cgroupfs)
	default:
		return fmt.Errorf("the container runtime has the cgroup driver %s, which svclet does not know", driver)
	}
	return nil
}

// systemProcesses keeps the processes of the system in a cgroup.
type systemProcesses interface {
	// Move moves those that are there now.
	Move(ctx context.Context)
	// Run moves new ones until ctx is done.
	Run(ctx context.Context)
}

// newSystemCgroup returns the tasks that keep the processes of the system in a
// cgroup; none if its name is empty.
func newSystemCgroup(name string, clock clock.WithTicker, o overrides) (tasks, error) {
	var system systemProcesses
	switch {
	case o.system != nil:
		system = o.system()
	case name == "":
		return tasks{}, nil
	default:
		var err error
		if system, err = cgroup.NewSystem(name, clock); err != nil {
			return tasks{}, err
		}
	}
	return tasks{before: []func(context.Context){system.Move}, parts: []func(context.Context){system.Run}}, nil
}

// enforce enforces node allocatable.
func enforce(ctx context.Context, manager *cgroup.Manager, recorder *events.Recorder, clock clock.Clock) {
	for manager.Enforce(recorder.Node) != nil {
		select {
		case <-ctx.Done():
			return
		case <-clock.After(enforceRetry):
		}
	}
}

// capacity returns what the machine has of the resources that cgroups limit. pids is the
// number of process IDs, 0 if it is unknown: then they are not limited.
func capacity(m node.Machine, pids int64) corev1.ResourceList {
	all := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(m.CPUs), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(m.Memory, resource.BinarySI),
	}
	for size, count := range m.HugePages {
		name := corev1.ResourceHugePagesPrefix + resource.NewQuantity(size, resource.BinarySI).String()
		all[corev1.ResourceName(name)] = *resource.NewQuantity(size*count, resource.BinarySI)
	}
	if pids > 0 {
		all[cgroup.PIDs] = *resource.NewQuantity(pids, resource.DecimalSI)
	}
	return all
}

// maxPIDs returns how many processes the kernel allows, as files below root ("/") say: the
// smaller one of pid_max and threads-max. It returns 0 if neither can be read.
func maxPIDs(root string) int64 {
	var most int64
	for _, file := range []string{"pid_max", "threads-max"} {
		content, err := os.ReadFile(filepath.Join(root, "proc/sys/kernel", file))
		if err != nil {
			continue
		}
		if limit, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64); err == nil && (most == 0 || limit < most) {
			most = limit
		}
	}
	return most
}
