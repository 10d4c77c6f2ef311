package svclet

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/cgroup"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/node"
)

// hostName is the node's name: override or, without it, the host's name, in
// lower case.
func hostName(override string) (string, error) {
	name, origin := override, "--hostname-override"
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return "", fmt.Errorf("read the host name: %w; give --hostname-override", err)
		}
		origin = "the host name"
	}
	name = strings.ToLower(strings.TrimSpace(name))
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return "", fmt.Errorf("%s: %q cannot name a node: %s", origin, name, problems[0])
	}
	return name, nil
}

// parseIPs parses --node-ip: an address, or one of each family.
func parseIPs(flag string) ([]net.IP, error) {
	if flag == "" {
		return nil, nil
	}
	var ips []net.IP
	for part := range strings.SplitSeq(flag, ",") {
		ip := net.ParseIP(strings.TrimSpace(part))
		if ip == nil {
			return nil, fmt.Errorf("--node-ip: %q is no IP address", part)
		}
		ips = append(ips, ip)
	}
	if len(ips) > 2 || len(ips) == 2 && (ips[0].To4() == nil) == (ips[1].To4() == nil) {
		return nil, fmt.Errorf("--node-ip: %q is not one address, or one of each family", flag)
	}
	return ips, nil
}

// reserved is what is kept from pods.
type reserved struct{ agent, system corev1.ResourceList }

// reservations reads --svc-reserved, --system-reserved and --reserved-cpus,
// whose number takes the place of the CPUs in the former two.
func reservations(c *config.Configuration) (reserved, error) {
	var r reserved
	var err error
	if r.agent, err = quantities("--svc-reserved", c.KubeReserved); err != nil {
		return r, err
	}
	if r.system, err = quantities("--system-reserved", c.SystemReserved); err != nil || c.ReservedSystemCPUs == "" {
		return r, err
	}
	cpus, err := cpuset.Parse(c.ReservedSystemCPUs)
	if err != nil {
		return r, fmt.Errorf("--reserved-cpus: %w", err)
	}
	delete(r.agent, corev1.ResourceCPU)
	r.system[corev1.ResourceCPU] = *resource.NewQuantity(int64(cpus.Size()), resource.DecimalSI)
	return r, nil
}

func quantities(flag string, from map[string]string) (corev1.ResourceList, error) {
	list := corev1.ResourceList{}
	for name, amount := range from {
		q, err := resource.ParseQuantity(amount)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %s=%s is no quantity, as 100m or 1Gi", flag, name, amount)
		case q.Sign() < 0:
			return nil, fmt.Errorf("%s: %s=%s is negative", flag, name, amount)
		}
		switch corev1.ResourceName(name) {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, cgroup.PIDs:
			list[corev1.ResourceName(name)] = q
		default:
			return nil, fmt.Errorf("%s: %s cannot be reserved: only cpu, memory, ephemeral-storage and pid can", flag, name)
		}
	}
	return list, nil
}

// all is what both keep.
func (r reserved) all() corev1.ResourceList {
	sum := corev1.ResourceList{}
	for _, list := range []corev1.ResourceList{r.agent, r.system} {
		for name, amount := range list {
			total := sum[name]
			total.Add(amount)
			sum[name] = total
		}
	}
	return sum
}

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
	reserved, err := reservations(c)
	if err != nil {
		return err
	}
	o := cgroup.Options{
		Root: c.CgroupRoot, MakeRoot: a.MakeCgroupRoot, PerQOS: *c.CgroupsPerQOS, Driver: cgroup.Driver(c.CgroupDriver), PodMaxPIDs: *c.PodPidsLimit,
		CPU:          cgroup.CPUQuota{Enforce: *c.CPUCFSQuota, Period: c.CPUCFSQuotaPeriod.Duration},
		Capacity:     capacity(a.machine),
		KubeReserved: reserved.agent, SystemReserved: reserved.system,
		KubeReservedCgroup: c.KubeReservedCgroup, SystemReservedCgroup: c.SystemReservedCgroup,
		Enforce: c.EnforceNodeAllocatable,
	}
	if o.QOSReserved, err = percentage(c.QOSReserved); err != nil {
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

// percentage reads --qos-reserved.
func percentage(reserved map[string]string) (int, error) {
	text, set := reserved[string(corev1.ResourceMemory)]
	if !set {
		return 0, nil
	}
	percentage, err := strconv.Atoi(strings.TrimSuffix(text, "%"))
	if err != nil {
		return 0, fmt.Errorf("--qos-reserved: memory=%s is no percentage", text)
	}
	return percentage, nil
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
