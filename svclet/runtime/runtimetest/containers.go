package runtimetest

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
)

// container is one container. Its messages are replaced, never changed.
type container struct {
	number    uint64
	config    *runtimeapi.ContainerConfig
	sandbox   *sandbox
	listed    *runtimeapi.Container
	status    *runtimeapi.ContainerStatus
	behaviour Behaviour
	// running reports whether its process runs; answers show that only when changes
	// are not held. ended is closed when it has ended.
	running bool
	ended   chan struct{}
	timer   clock.Timer
}

func (c *container) uid() types.UID { return c.sandbox.uid() }

func (c *container) stopTimer() {
	if c.timer != nil {
		c.timer.Stop()
	}
}

// CreateContainer creates a container.
func (r *Runtime) CreateContainer(_ context.Context, request *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, config := r.sandboxes[request.GetPodSandboxId()], request.GetConfig()
	switch {
	case s == nil:
		return nil, notFound("sandbox", request.GetPodSandboxId())
	case s.status.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY:
		return nil, status.Errorf(codes.Unknown, "sandbox %q is not ready", request.GetPodSandboxId())
	case config.GetMetadata() == nil || config.GetImage() == nil:
		return nil, status.Error(codes.InvalidArgument, "the container config has no metadata or no image")
	}
	image := r.image(config.GetImage().GetImage())
	if image == nil {
		return nil, status.Errorf(codes.NotFound, "failed to get image %q: not found", config.GetImage().GetImage())
	}
	for id := range r.pods[s.uid()] {
		if old := r.containers[id]; old != nil && proto.Equal(old.config.GetMetadata(), config.GetMetadata()) {
			return nil, status.Errorf(codes.Unknown, "failed to reserve container name %q: it is reserved for %q", config.GetMetadata().GetName(), id)
		}
	}
	number, id := r.identity()
	now := r.options.Clock.Now().UnixNano()
	c := &container{number: number, config: config, sandbox: s, ended: make(chan struct{})}
	c.listed = &runtimeapi.Container{
		Id: id, PodSandboxId: s.status.GetId(), Metadata: config.GetMetadata(), Image: config.GetImage(), ImageRef: image.GetId(),
		ImageId: image.GetId(), State: runtimeapi.ContainerState_CONTAINER_CREATED, CreatedAt: now,
		Labels: config.GetLabels(), Annotations: config.GetAnnotations(),
	}
	c.status = &runtimeapi.ContainerStatus{
		Id: id, Metadata: config.GetMetadata(), State: c.listed.State, CreatedAt: now, Image: config.GetImage(),
		ImageRef: image.GetId(), ImageId: image.GetId(), Labels: config.GetLabels(), Annotations: config.GetAnnotations(),
		Mounts: config.GetMounts(), LogPath: filepath.Join(s.config.GetLogDirectory(), config.GetLogPath()),
		Resources: &runtimeapi.ContainerResources{Linux: config.GetLinux().GetResources()},
	}
	r.containers[id] = c
	r.addID(c.uid(), id)
	r.announce(s, id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, nil
}

// StartContainer starts a container.
func (r *Runtime) StartContainer(_ context.Context, request *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[request.GetContainerId()]
	if c == nil {
		return nil, notFound("container", request.GetContainerId())
	}
	if c.status.GetState() != runtimeapi.ContainerState_CONTAINER_CREATED {
		return nil, status.Errorf(codes.Unknown, "container %q is in state %s", c.status.GetId(), c.status.GetState())
	}
	if err := c.openLog(); err != nil {
		return nil, status.Error(codes.Unknown, err.Error())
	}
	now := r.options.Clock.Now().UnixNano()
	c.running, c.behaviour = true, r.options.Behave(c.config)
	r.change(c, func(status *runtimeapi.ContainerStatus) {
		status.State, status.StartedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, now
	})
	r.announce(c.sandbox, c.status.GetId(), runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	if after := c.behaviour.EndsAfter; after > 0 {
		// A fake clock holds its lock during the call, and End reads the clock.
		id, end := c.status.GetId(), c.behaviour.End
		c.timer = r.options.Clock.AfterFunc(after, func() { go r.End(id, end) })
	}
	return &runtimeapi.StartContainerResponse{}, nil
}

// openLog creates the file of the container's log, if its configuration has one. The
// directory must exist, as for any runtime.
func (c *container) openLog() error {
	if c.sandbox.config.GetLogDirectory() == "" || c.config.GetLogPath() == "" {
		return nil
	}
	log, err := os.OpenFile(c.status.GetLogPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("open the log of the container: %w", err)
	}
	return log.Close()
}

// End ends a running container. It does nothing if the container does not run.
func (r *Runtime) End(id string, end End) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		r.end(c, end)
	}
}

// OOM ends a container as the kernel does when it is out of memory.
func (r *Runtime) OOM(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		r.publish("/tasks/oom", id)
		r.end(c, End{Code: 137, Reason: "OOMKilled"})
	}
}

// LateOOM reports, after a container has ended, that it was out of memory. containerd
// may report that late.
func (r *Runtime) LateOOM(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		r.change(c, func(status *runtimeapi.ContainerStatus) { status.Reason = "OOMKilled" })
		r.publish("/tasks/oom", id)
	}
}

// end ends a container if it runs. The caller holds mu.
func (r *Runtime) end(c *container, end End) {
	if !c.running {
		return
	}
	c.running = false
	c.stopTimer()
	now := r.options.Clock.Now().UnixNano()
	reason := "Completed"
	if end.Code != 0 {
		reason = "Error"
	}
	r.change(c, func(status *runtimeapi.ContainerStatus) {
		status.State, status.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, now
		status.ExitCode, status.Reason, status.Message = end.Code, cmp.Or(end.Reason, reason), end.Message
	})
	close(c.ended)
	r.announce(c.sandbox, c.status.GetId(), runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// Change changes the status of a container, without an event.
func (r *Runtime) Change(id string, edit func(*runtimeapi.ContainerStatus)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		r.change(c, edit)
	}
}

// change changes a container's status. The caller holds mu.
func (r *Runtime) change(c *container, edit func(*runtimeapi.ContainerStatus)) {
	r.show(func() {
		c.listed, c.status = clone(c.listed), clone(c.status)
		edit(c.status)
		c.listed.State = c.status.GetState()
	})
}

// show makes a change visible now or, while changes are held, at Release. The caller
// holds mu.
func (r *Runtime) show(change func()) {
	if r.holding {
		r.held = append(r.held, change)
		return
	}
	change()
}

// StopContainer asks a container to end, and kills it after its grace period.
func (r *Runtime) StopContainer(ctx context.Context, request *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	r.mu.Lock()
	c := r.containers[request.GetContainerId()]
	if c == nil {
		r.mu.Unlock()
		return nil, notFound("container", request.GetContainerId())
	}
	grace := time.Duration(request.GetTimeout()) * time.Second
	takes, end, running, ended := c.behaviour.StopTakes, End{Code: c.behaviour.StopCode}, c.running, c.ended
	r.mu.Unlock()
	if !running {
		return &runtimeapi.StopContainerResponse{}, nil
	}
	if takes > grace || grace == 0 {
		takes, end = grace, End{Code: 137}
	}
	if takes > 0 {
		timer := r.options.Clock.NewTimer(takes)
		defer timer.Stop()
		select {
		case <-timer.C():
		case <-ended:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	r.End(request.GetContainerId(), end)
	return &runtimeapi.StopContainerResponse{}, nil
}

// RemoveContainer removes a container, killing it if it runs.
func (r *Runtime) RemoveContainer(_ context.Context, request *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[request.GetContainerId()]; c != nil {
		r.end(c, End{Code: 137})
		r.remove(c)
	}
	return &runtimeapi.RemoveContainerResponse{}, nil
}

// remove removes a container. The caller holds mu.
func (r *Runtime) remove(c *container) {
	delete(r.containers, c.status.GetId())
	r.removeID(c.uid(), c.status.GetId())
	r.announce(c.sandbox, c.status.GetId(), runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
}

// ContainerStatus returns the status of a container.
func (r *Runtime) ContainerStatus(_ context.Context, request *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[request.GetContainerId()]
	if c == nil {
		return nil, notFound("container", request.GetContainerId())
	}
	return &runtimeapi.ContainerStatusResponse{Status: c.status}, nil
}

// ListContainers lists the containers that a filter selects.
func (r *Runtime) ListContainers(_ context.Context, request *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	filter := request.GetFilter()
	answer := &runtimeapi.ListContainersResponse{}
	take := func(c *container) {
		if c == nil || filter.GetState() != nil && filter.GetState().GetState() != c.listed.GetState() ||
			filter.GetPodSandboxId() != "" && filter.GetPodSandboxId() != c.listed.GetPodSandboxId() ||
			!selects(filter.GetLabelSelector(), c.listed.GetLabels()) {
			return
		}
		answer.Containers = append(answer.Containers, c.listed)
	}
	if ids, some := r.candidates(filter.GetId(), filter.GetLabelSelector()); some {
		for id := range ids {
			take(r.containers[id])
		}
		return answer, nil
	}
	for _, c := range r.containers {
		take(c)
	}
	return answer, nil
}

// UpdateContainerResources changes those resources of a container that the request
// has.
func (r *Runtime) UpdateContainerResources(
	_ context.Context, request *runtimeapi.UpdateContainerResourcesRequest,
) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[request.GetContainerId()]
	if c == nil {
		return nil, notFound("container", request.GetContainerId())
	}
	r.change(c, func(status *runtimeapi.ContainerStatus) {
		status.Resources = &runtimeapi.ContainerResources{Linux: merged(c.resources(), request.GetLinux())}
	})
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

// resources returns the container's resources, as created or last updated.
func (c *container) resources() *runtimeapi.LinuxContainerResources {
	if updated := c.status.GetResources().GetLinux(); updated != nil {
		return updated
	}
	return c.config.GetLinux().GetResources()
}

// merged returns resources with those of a change that are set.
func merged(resources, change *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerResources {
	all := &runtimeapi.LinuxContainerResources{}
	if resources != nil {
		proto.Merge(all, resources)
	}
	if change != nil {
		proto.Merge(all, change)
	}
	return all
}

// CPUs returns the CPUs that a container may use, empty for all or if there is no such
// container.
func (r *Runtime) CPUs(id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		return c.resources().GetCpusetCpus()
	}
	return ""
}

// CDIDevices returns the names of the CDI devices of a container.
func (r *Runtime) CDIDevices(id string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	if c := r.containers[id]; c != nil {
		for _, d := range c.config.GetCDIDevices() {
			all = append(all, d.GetName())
		}
	}
	return all
}
