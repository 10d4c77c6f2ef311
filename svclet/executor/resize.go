package executor

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/svclet/container"
	"svc.dev/svc/svclet/pod"
)

const reasonResize = "ResizeError"

// resizeContainer gives a running container the CPU and memory of the pod's spec.
func (e *Executor) resizeContainer(ctx context.Context, p *corev1.Pod, observed pod.Observed, op pod.Operation) pod.Result {
	_, c := podspec.Find(&p.Spec, op.Name)
	if c == nil {
		return failed(reasonResize, fmt.Errorf("the pod has no container %q", op.Name))
	}
	wanted := container.Resources(e.containerOptions(), p, c)
	if err := e.memorySuffices(ctx, observed, op, wanted.MemoryLimitInBytes); err != nil {
		return failed(reasonResize, err)
	}
	return asResult(reasonResize, e.o.Runtime.UpdateResources(ctx, op.ID, &runtimeapi.ContainerResources{Linux: wanted}))
}

// memorySuffices refuses a limit lower than the present one and below what the container uses and
// cannot give back, or if that is unknown: the kernel would kill its processes (cgroup v2) or
// refuse the limit (v1).
func (e *Executor) memorySuffices(ctx context.Context, observed pod.Observed, op pod.Operation, limit int64) error {
	present := memoryLimit(observed, op.ID)
	if limit <= 0 || present > 0 && limit >= present {
		return nil
	}
	stats, err := e.o.Runtime.ContainerStats(ctx, op.ID)
	if err != nil {
		return err
	}
	used := stats.GetMemory().GetWorkingSetBytes()
	switch {
	case used == nil:
		return fmt.Errorf("the runtime has no memory usage of container %s", op.Name)
	case used.GetValue() > uint64(limit):
		return fmt.Errorf("attempting to set the memory limit of container %s (%d) below current usage (%d)", op.Name, limit, used.GetValue())
	}
	return nil
}

// memoryLimit returns the memory limit of a container that the runtime reports; 0 without one.
func memoryLimit(observed pod.Observed, id string) int64 {
	i := slices.IndexFunc(observed.Containers, func(c pod.Container) bool { return c.ID == id })
	if i < 0 || observed.Containers[i].Resources == nil {
		return 0
	}
	return observed.Containers[i].Resources.Limits.Memory().Value()
}

// resizePod gives a pod's cgroup the limits of its spec, which it announces to the runtime
// first: one that sizes a virtual machine by them may reject them.
func (e *Executor) resizePod(ctx context.Context, p *corev1.Pod, observed pod.Observed, op pod.Operation) pod.Result {
	r, err := e.resourcesOf(p.UID)
	if err != nil {
		return failed(reasonResize, err)
	}
	overhead, has := container.SandboxResources(e.containerOptions(), r.sized)
	_, wanted := container.SandboxResources(e.containerOptions(), p)
	raised := larger(wanted, has)
	before, next, previous := r.sized, raised, has
	if !op.Grow {
		if err := e.o.Cgroups.MemorySuffices(p); err != nil {
			return failed(reasonResize, err)
		}
		before, next, previous = nil, wanted, raised
	}
	announce := func(sum *runtimeapi.LinuxContainerResources) error {
		if i := slices.IndexFunc(observed.Sandboxes, func(s pod.Sandbox) bool { return s.Ready }); i >= 0 {
			return e.o.Runtime.UpdateSandboxResources(ctx, &runtimeapi.UpdatePodSandboxResourcesRequest{
				PodSandboxId: observed.Sandboxes[i].ID, Overhead: overhead, Resources: sum,
			})
		}
		return nil
	}
	if err := announce(next); err != nil {
		return failed(reasonResize, err)
	}
	if err := e.o.Cgroups.Resize(p, before); err != nil {
		if err := announce(previous); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to take back the resources of a pod that were announced to the runtime", "pod", klog.KObj(p))
		}
		return failed(reasonResize, err)
	}
	if !op.Grow {
		e.mu.Lock()
		defer e.mu.Unlock()
		r.sized = p
	}
	return pod.Result{}
}

// larger returns the larger CPU and memory of a and b. Without a limit in one of them there is
// none.
func larger(a, b *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerResources {
	limit := func(a, b int64) int64 {
		if a <= 0 || b <= 0 {
			return min(a, b)
		}
		return max(a, b)
	}
	return &runtimeapi.LinuxContainerResources{
		CpuPeriod: a.CpuPeriod, CpuQuota: limit(a.CpuQuota, b.CpuQuota), CpuShares: max(a.CpuShares, b.CpuShares),
		MemoryLimitInBytes: limit(a.MemoryLimitInBytes, b.MemoryLimitInBytes), Unified: a.Unified,
	}
}
