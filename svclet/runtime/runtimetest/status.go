package runtimetest

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Version returns the runtime's name.
func (r *Runtime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{
		Version: "0.1.0", RuntimeName: r.options.Name, RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1",
	}, nil
}

// Status returns the conditions, and a default handler with all features.
func (r *Runtime) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: r.conditions},
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{
			{Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true, UserNamespaces: true}},
		},
		Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
	}, nil
}

// RuntimeConfig returns the cgroup driver.
func (r *Runtime) RuntimeConfig(ctx context.Context, request *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	if r.options.CgroupDriver == nil {
		return r.UnimplementedRuntimeServiceServer.RuntimeConfig(ctx, request)
	}
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: *r.options.CgroupDriver}}, nil
}

// UpdateRuntimeConfig does nothing.
func (r *Runtime) UpdateRuntimeConfig(
	context.Context, *runtimeapi.UpdateRuntimeConfigRequest,
) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

// The usage of a container: a constant amount of memory, and a hundredth of a CPU
// since it has started.
const (
	memoryBytes = 10 << 20
	cpuShare    = 100
)

// ListPodSandboxStats returns the usage of ready sandboxes.
func (r *Runtime) ListPodSandboxStats(
	_ context.Context, request *runtimeapi.ListPodSandboxStatsRequest,
) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	running := map[string][]*runtimeapi.ContainerStats{}
	for _, c := range r.containers {
		if c.running {
			id := c.listed.GetPodSandboxId()
			running[id] = append(running[id], r.stats(c))
		}
	}
	answer := &runtimeapi.ListPodSandboxStatsResponse{}
	for id, s := range r.sandboxes {
		if s.listed.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY || request.GetFilter().GetId() != "" && request.GetFilter().GetId() != id ||
			!selects(request.GetFilter().GetLabelSelector(), s.listed.GetLabels()) {
			continue
		}
		answer.Stats = append(answer.Stats, &runtimeapi.PodSandboxStats{
			Attributes: &runtimeapi.PodSandboxAttributes{
				Id: id, Metadata: s.listed.GetMetadata(), Labels: s.listed.GetLabels(), Annotations: s.listed.GetAnnotations(),
			},
			Linux: &runtimeapi.LinuxPodSandboxStats{Containers: running[id]},
		})
	}
	return answer, nil
}

// ListContainerStats returns the usage of running containers.
func (r *Runtime) ListContainerStats(
	_ context.Context, request *runtimeapi.ListContainerStatsRequest,
) (*runtimeapi.ListContainerStatsResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	filter := request.GetFilter()
	answer := &runtimeapi.ListContainerStatsResponse{}
	for id, c := range r.containers {
		if c.running && (filter.GetId() == "" || filter.GetId() == id) &&
			(filter.GetPodSandboxId() == "" || filter.GetPodSandboxId() == c.listed.GetPodSandboxId()) &&
			selects(filter.GetLabelSelector(), c.listed.GetLabels()) {
			answer.Stats = append(answer.Stats, r.stats(c))
		}
	}
	return answer, nil
}

// ContainerStats returns the usage of one container.
func (r *Runtime) ContainerStats(_ context.Context, request *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[request.GetContainerId()]
	if c == nil {
		return nil, notFound("container", request.GetContainerId())
	}
	return &runtimeapi.ContainerStatsResponse{Stats: r.stats(c)}, nil
}

// stats returns the usage of one container. The caller holds mu.
func (r *Runtime) stats(c *container) *runtimeapi.ContainerStats {
	now := r.options.Clock.Now().UnixNano()
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id: c.listed.GetId(), Metadata: c.listed.GetMetadata(), Labels: c.listed.GetLabels(), Annotations: c.listed.GetAnnotations(),
		},
		Cpu: &runtimeapi.CpuUsage{
			Timestamp:            now,
			UsageCoreNanoSeconds: &runtimeapi.UInt64Value{Value: uint64(max(0, now-c.status.GetStartedAt())) / cpuShare},
		},
		Memory: &runtimeapi.MemoryUsage{
			Timestamp:       now,
			WorkingSetBytes: &runtimeapi.UInt64Value{Value: memoryBytes},
			UsageBytes:      &runtimeapi.UInt64Value{Value: memoryBytes},
			RssBytes:        &runtimeapi.UInt64Value{Value: memoryBytes},
		},
	}
}
