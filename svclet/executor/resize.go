package executor

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/svclet/container"
	"svc.dev/svc/svclet/pod"
)

const reasonResize = "ResizeError"

// resizeContainer gives a running container the CPU and memory of the pod's spec.
func (e *Executor) resizeContainer(ctx context.Context, p *corev1.Pod, op pod.Operation) pod.Result {
	_, c := podspec.Find(&p.Spec, op.Name)
	if c == nil {
		return failed(reasonResize, fmt.Errorf("the pod has no container %q", op.Name))
	}
	wanted := container.Resources(e.containerOptions(), p, c)
	if err := e.memorySuffices(ctx, op, wanted.MemoryLimitInBytes); err != nil {
		return failed(reasonResize, err)
	}
	return asResult(reasonResize, e.o.Runtime.UpdateResources(ctx, op.ID, &runtimeapi.ContainerResources{Linux: wanted}))
}

// memorySuffices refuses a limit below what the container uses and cannot give back:
// the kernel would kill its processes (cgroup v2) or refuse the limit (v1).
func (e *Executor) memorySuffices(ctx context.Context, op pod.Operation, limit int64) error {
	if limit <= 0 {
		return nil
	}
	stats, err := e.o.Runtime.ContainerStats(ctx, op.ID)
	if err != nil {
		return err
	}
	if used := stats.GetMemory().GetWorkingSetBytes().GetValue(); used > uint64(limit) {
		return fmt.Errorf("attempting to set the memory limit of container %s (%d) below current usage (%d)", op.Name, limit, used)
	}
	return nil
}

// resizePod gives a pod's cgroup the limits of its spec.
func (e *Executor) resizePod(p *corev1.Pod, op pod.Operation) pod.Result {
	r, err := e.resourcesOf(p.UID)
	if err != nil {
		return failed(reasonResize, err)
	}
	if op.Grow {
		return asResult(reasonResize, e.o.Cgroups.Resize(p, r.sized))
	}
	if err := e.o.Cgroups.Resize(p, nil); err != nil {
		return failed(reasonResize, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	r.sized = p
	return pod.Result{}
}
