package nodeconfig

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"svc.dev/svc/svclet/cgroup"
	"svc.dev/svc/svclet/config"
)

// Reservations are the resources of the node that pods cannot use.
type Reservations struct {
	// Agent is --svc-reserved, System is --system-reserved.
	Agent, System corev1.ResourceList
}

// ParseReservations parses --svc-reserved, --system-reserved and --reserved-cpus.
// The number of the reserved CPUs replaces the CPUs of the other two flags.
func ParseReservations(c *config.Configuration) (Reservations, error) {
	var r Reservations
	var err error
	if r.Agent, err = quantities("--svc-reserved", c.KubeReserved); err != nil {
		return r, err
	}
	if r.System, err = quantities("--system-reserved", c.SystemReserved); err != nil || c.ReservedSystemCPUs == "" {
		return r, err
	}
	cpus, err := cpuset.Parse(c.ReservedSystemCPUs)
	if err != nil {
		return r, fmt.Errorf("--reserved-cpus: %w", err)
	}
	delete(r.Agent, corev1.ResourceCPU)
	r.System[corev1.ResourceCPU] = *resource.NewQuantity(int64(cpus.Size()), resource.DecimalSI)
	return r, nil
}

func quantities(flag string, from map[string]string) (corev1.ResourceList, error) {
	list := corev1.ResourceList{}
	for name, amount := range from {
		q, err := resource.ParseQuantity(amount)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: invalid quantity %s=%s: must be like 100m or 1Gi", flag, name, amount)
		case q.Sign() < 0:
			return nil, fmt.Errorf("%s: invalid quantity %s=%s: must not be negative", flag, name, amount)
		}
		switch corev1.ResourceName(name) {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, cgroup.PIDs:
			list[corev1.ResourceName(name)] = q
		default:
			return nil, fmt.Errorf("%s: unsupported resource %s: must be cpu, memory, ephemeral-storage or pid", flag, name)
		}
	}
	return list, nil
}

// Total returns the sum of both reservations.
func (r Reservations) Total() corev1.ResourceList {
	sum := corev1.ResourceList{}
	for _, list := range []corev1.ResourceList{r.Agent, r.System} {
		for name, amount := range list {
			total := sum[name]
			total.Add(amount)
			sum[name] = total
		}
	}
	return sum
}

// ParseQOSReserved parses --qos-reserved: the percentage of the memory that pods
// request which pods of lower QoS classes cannot use. It returns 0 if memory is
// not reserved.
func ParseQOSReserved(reserved map[string]string) (int, error) {
	text, set := reserved[string(corev1.ResourceMemory)]
	if !set {
		return 0, nil
	}
	percentage, err := strconv.Atoi(strings.TrimSuffix(text, "%"))
	if err != nil {
		return 0, fmt.Errorf("--qos-reserved: invalid value memory=%s: must be a percentage", text)
	}
	return percentage, nil
}
