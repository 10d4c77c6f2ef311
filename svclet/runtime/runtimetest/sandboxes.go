package runtimetest

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandbox is one sandbox. Its messages are replaced, never changed: answers
// in flight refer to them.
type sandbox struct {
	number uint64
	config *runtimeapi.PodSandboxConfig
	listed *runtimeapi.PodSandbox
	status *runtimeapi.PodSandboxStatus
}

func (s *sandbox) uid() types.UID { return types.UID(s.config.GetMetadata().GetUid()) }

// RunPodSandbox creates a sandbox, which is ready at once.
func (r *Runtime) RunPodSandbox(_ context.Context, request *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	config := request.GetConfig()
	if config.GetMetadata() == nil {
		return nil, status.Error(codes.InvalidArgument, "the sandbox config has no metadata")
	}
	for id := range r.pods[types.UID(config.GetMetadata().GetUid())] {
		if old := r.sandboxes[id]; old != nil && proto.Equal(old.config.GetMetadata(), config.GetMetadata()) {
			return nil, status.Errorf(codes.Unknown, "failed to reserve sandbox name %q: it is reserved for %q", config.GetMetadata().GetName(), id)
		}
	}
	number, id := r.identity()
	now := r.options.Clock.Now().UnixNano()
	s := &sandbox{number: number, config: config}
	s.listed = &runtimeapi.PodSandbox{
		Id: id, Metadata: config.GetMetadata(), State: runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: now,
		Labels: config.GetLabels(), Annotations: config.GetAnnotations(), RuntimeHandler: request.GetRuntimeHandler(),
	}
	namespaces := config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	network := &runtimeapi.PodSandboxNetworkStatus{}
	if namespaces.GetNetwork() != runtimeapi.NamespaceMode_NODE {
		network.Ip = fmt.Sprintf("10.%d.%d.%d", 64+number>>16&63, number>>8&255, number&255)
	}
	s.status = &runtimeapi.PodSandboxStatus{
		Id: id, Metadata: config.GetMetadata(), State: s.listed.State, CreatedAt: now, Network: network,
		Linux:  &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: namespaces}},
		Labels: config.GetLabels(), Annotations: config.GetAnnotations(), RuntimeHandler: request.GetRuntimeHandler(),
	}
	r.sandboxes[id] = s
	r.addID(s.uid(), id)
	r.announce(s, id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	r.announce(s, id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, nil
}

// StopPodSandbox kills the containers of a sandbox, and stops the sandbox.
func (r *Runtime) StopPodSandbox(_ context.Context, request *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopSandbox(r.sandboxes[request.GetPodSandboxId()])
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

// BreakSandbox ends a sandbox and its containers as a reboot or the death of
// its process does.
func (r *Runtime) BreakSandbox(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopSandbox(r.sandboxes[id])
}

// stopSandbox stops a sandbox if there is one. The caller holds mu.
func (r *Runtime) stopSandbox(s *sandbox) {
	if s == nil {
		return
	}
	for _, c := range r.containers {
		if c.listed.GetPodSandboxId() == s.status.GetId() {
			r.end(c, End{Code: 137})
		}
	}
	if s.status.GetState() == runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		return
	}
	r.show(func() {
		s.listed, s.status = clone(s.listed), clone(s.status)
		s.listed.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		s.status.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	})
	r.announce(s, s.status.GetId(), runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// RemovePodSandbox removes a sandbox and its containers.
func (r *Runtime) RemovePodSandbox(_ context.Context, request *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[request.GetPodSandboxId()]
	if s == nil {
		return &runtimeapi.RemovePodSandboxResponse{}, nil
	}
	r.stopSandbox(s)
	for _, c := range r.containers {
		if c.listed.GetPodSandboxId() == s.status.GetId() {
			r.remove(c)
		}
	}
	delete(r.sandboxes, s.status.GetId())
	r.removeID(s.uid(), s.status.GetId())
	r.announce(s, s.status.GetId(), runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

// UpdatePodSandboxResources is told the new resources of a pod, which it does not show.
func (r *Runtime) UpdatePodSandboxResources(
	_ context.Context, request *runtimeapi.UpdatePodSandboxResourcesRequest,
) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sandboxes[request.GetPodSandboxId()] == nil {
		return nil, notFound("sandbox", request.GetPodSandboxId())
	}
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

// PodSandboxStatus returns the status of a sandbox.
func (r *Runtime) PodSandboxStatus(_ context.Context, request *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[request.GetPodSandboxId()]
	if s == nil {
		return nil, notFound("sandbox", request.GetPodSandboxId())
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: s.status}, nil
}

// ListPodSandbox lists the sandboxes that a filter selects.
func (r *Runtime) ListPodSandbox(_ context.Context, request *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	filter := request.GetFilter()
	answer := &runtimeapi.ListPodSandboxResponse{}
	take := func(s *sandbox) {
		if s == nil || filter.GetState() != nil && filter.GetState().GetState() != s.listed.GetState() ||
			!selects(filter.GetLabelSelector(), s.listed.GetLabels()) {
			return
		}
		answer.Items = append(answer.Items, s.listed)
	}
	if ids, some := r.candidates(filter.GetId(), filter.GetLabelSelector()); some {
		for id := range ids {
			take(r.sandboxes[id])
		}
		return answer, nil
	}
	for _, s := range r.sandboxes {
		take(s)
	}
	return answer, nil
}

// PortForward returns the URL of a stream without a server.
func (r *Runtime) PortForward(_ context.Context, request *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sandboxes[request.GetPodSandboxId()] == nil {
		return nil, notFound("sandbox", request.GetPodSandboxId())
	}
	return &runtimeapi.PortForwardResponse{Url: "http://127.0.0.1:0/portforward/" + request.GetPodSandboxId()}, nil
}

// selects reports whether labels match a selector.
func selects(selector, labels map[string]string) bool {
	for name, value := range selector {
		if labels[name] != value {
			return false
		}
	}
	return true
}

func clone[T proto.Message](message T) T { return proto.Clone(message).(T) }
