package runtimetest

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ExecSync runs a command as the options say.
func (r *Runtime) ExecSync(_ context.Context, request *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	config, err := r.runningConfig(request.GetContainerId())
	if err != nil {
		return nil, err
	}
	result := r.options.Exec(config, request.GetCmd())
	if result.Err != nil {
		return nil, result.Err
	}
	r.mu.Lock()
	r.publish("/tasks/exit", request.GetContainerId(), "exec")
	r.mu.Unlock()
	return &runtimeapi.ExecSyncResponse{Stdout: result.Stdout, Stderr: result.Stderr, ExitCode: result.Code}, nil
}

// Exec returns the URL of a stream without a server.
func (r *Runtime) Exec(_ context.Context, request *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	if _, err := r.runningConfig(request.GetContainerId()); err != nil {
		return nil, err
	}
	return &runtimeapi.ExecResponse{Url: "http://127.0.0.1:0/exec/" + request.GetContainerId()}, nil
}

// Attach returns the URL of a stream without a server.
func (r *Runtime) Attach(_ context.Context, request *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	if _, err := r.runningConfig(request.GetContainerId()); err != nil {
		return nil, err
	}
	return &runtimeapi.AttachResponse{Url: "http://127.0.0.1:0/attach/" + request.GetContainerId()}, nil
}

// ReopenContainerLog creates the log of a running container if it does not exist.
func (r *Runtime) ReopenContainerLog(
	_ context.Context, request *runtimeapi.ReopenContainerLogRequest,
) (*runtimeapi.ReopenContainerLogResponse, error) {
	if _, err := r.runningConfig(request.GetContainerId()); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[request.GetContainerId()]; c != nil {
		if err := c.openLog(); err != nil {
			return nil, status.Error(codes.Unknown, err.Error())
		}
	}
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}

// runningConfig returns the configuration of a running container.
func (r *Runtime) runningConfig(id string) (*runtimeapi.ContainerConfig, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return nil, notFound("container", id)
	}
	if !c.running {
		return nil, status.Errorf(codes.Unknown, "container %q is in state %s", id, c.status.GetState())
	}
	return c.config, nil
}
