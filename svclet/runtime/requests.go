package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/exec"

	"k8s.io/apimachinery/pkg/types"
)

// Version requests the runtime's name and version.
func (c *Client) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	var answer *runtimeapi.VersionResponse
	err := c.do(ctx, "version", "ask the runtime for its version", func(ctx context.Context) (err error) {
		answer, err = c.runtime.Version(ctx, "0.1.0")
		return err
	})
	return answer, err
}

// SetPodCIDRs sets the runtime's pod address ranges: one, or one of each IP
// family, separated by a comma.
func (c *Client) SetPodCIDRs(ctx context.Context, cidrs string) error {
	return c.do(ctx, "update_runtime_config", "tell the runtime the addresses of pods", func(ctx context.Context) error {
		return c.runtime.UpdateRuntimeConfig(ctx, &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: cidrs}})
	})
}

// RunSandbox creates and starts a sandbox, and returns its ID. handler is the
// runtime handler of the pod's RuntimeClass, "" for the default one.
func (c *Client) RunSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	var id string
	what := fmt.Sprintf("run the sandbox of pod %s/%s", config.GetMetadata().GetNamespace(), config.GetMetadata().GetName())
	err := c.do(ctx, "run_podsandbox", what, func(ctx context.Context) (err error) {
		id, err = c.runtime.RunPodSandbox(ctx, config, handler)
		return err
	})
	if err == nil {
		c.own(types.UID(config.GetMetadata().GetUid()), id)
	}
	return id, err
}

// StopSandbox stops a sandbox and its containers. It is not an error if the
// sandbox does not exist.
func (c *Client) StopSandbox(ctx context.Context, id string) error {
	defer c.invalidate(id)
	return c.doUnlessNotFound(ctx, "stop_podsandbox", "stop sandbox "+id, func(ctx context.Context) error {
		return c.runtime.StopPodSandbox(ctx, id)
	})
}

// RemoveSandbox removes a sandbox and its containers. It is not an error if the
// sandbox does not exist.
func (c *Client) RemoveSandbox(ctx context.Context, id string) error {
	defer c.invalidate(id)
	return c.doUnlessNotFound(ctx, "remove_podsandbox", "remove sandbox "+id, func(ctx context.Context) error {
		return c.runtime.RemovePodSandbox(ctx, id)
	})
}

// CreateContainer creates a container in a sandbox, and returns its ID.
func (c *Client) CreateContainer(
	ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig,
) (string, error) {
	var id string
	what := fmt.Sprintf("create container %s of pod %s/%s in sandbox %s", config.GetMetadata().GetName(),
		sandbox.GetMetadata().GetNamespace(), sandbox.GetMetadata().GetName(), sandboxID)
	err := c.do(ctx, "create_container", what, func(ctx context.Context) (err error) {
		id, err = c.runtime.CreateContainer(ctx, sandboxID, config, sandbox)
		return err
	})
	if err == nil {
		c.own(types.UID(sandbox.GetMetadata().GetUid()), id)
	}
	return id, err
}

// StartContainer starts a created container.
func (c *Client) StartContainer(ctx context.Context, id string) error {
	defer c.invalidate(id)
	return c.do(ctx, "start_container", "start container "+id, func(ctx context.Context) error {
		return c.runtime.StartContainer(ctx, id)
	})
}

// StopContainer sends a container its stop signal and kills it after grace, which
// CRI counts in whole seconds (it is rounded up; zero kills at once). It returns
// when the container has exited. It is not an error if the container does not
// exist.
func (c *Client) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	defer c.invalidate(id)
	return c.doUnlessNotFound(ctx, "stop_container", "stop container "+id, func(ctx context.Context) error {
		return c.runtime.StopContainer(ctx, id, int64(wholeSeconds(grace)/time.Second))
	})
}

// RemoveContainer removes a container. It is not an error if the container does
// not exist.
func (c *Client) RemoveContainer(ctx context.Context, id string) error {
	defer c.invalidate(id)
	return c.doUnlessNotFound(ctx, "remove_container", "remove container "+id, func(ctx context.Context) error {
		return c.runtime.RemoveContainer(ctx, id)
	})
}

// UpdateResources changes the resources of a container.
func (c *Client) UpdateResources(ctx context.Context, id string, resources *runtimeapi.ContainerResources) error {
	defer c.invalidate(id)
	return c.do(ctx, "update_container", "update the resources of container "+id, func(ctx context.Context) error {
		return c.runtime.UpdateContainerResources(ctx, id, resources)
	})
}

// UpdateSandboxResources notifies the runtime of a pod's new resources, before the agent applies
// them to the pod's cgroup. An error means that the runtime rejects them. It is not an error if
// the runtime does not implement the request.
func (c *Client) UpdateSandboxResources(ctx context.Context, request *runtimeapi.UpdatePodSandboxResourcesRequest) error {
	what := "update the resources of sandbox " + request.PodSandboxId
	return c.do(ctx, "update_podsandbox_resources", what, func(ctx context.Context) error {
		_, err := c.runtime.UpdatePodSandboxResources(ctx, request)
		// containerd 2.2 has another code.
		if IsUnimplemented(err) || status.Code(err) == codes.Unknown && strings.Contains(err.Error(), "not implemented") {
			return nil
		}
		return err
	})
}

// ExecSync runs a command in a container and returns its output and exit code. The
// runtime kills it after timeout, which CRI counts in whole seconds (it is rounded
// up; zero means no limit); [IsTimeout] is then true of the error. A non-zero exit
// code is not an error.
func (c *Client) ExecSync(
	ctx context.Context, id string, command []string, timeout time.Duration,
) (stdout, stderr []byte, exitCode int32, err error) {
	err = c.do(ctx, "exec_sync", "run a command in container "+id, func(ctx context.Context) error {
		var err error
		stdout, stderr, err = c.runtime.ExecSync(ctx, id, command, wholeSeconds(timeout))
		var exited exec.CodeExitError
		if errors.As(err, &exited) {
			exitCode = int32(exited.Code)
			return nil
		}
		return err
	})
	return stdout, stderr, exitCode, err
}

// Checkpoint writes the state of a container to a file, which the runtime creates. A
// timeout of zero is the runtime's own; CRI counts it in whole seconds.
func (c *Client) Checkpoint(ctx context.Context, id, location string, timeout time.Duration) error {
	return c.do(ctx, "checkpoint_container", "checkpoint container "+id, func(ctx context.Context) error {
		return c.runtime.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{
			ContainerId: id, Location: location, Timeout: int64(wholeSeconds(timeout) / time.Second),
		})
	})
}

// ReopenLog makes the runtime write a container's log to a new file of the same
// name, after the old one has been renamed.
func (c *Client) ReopenLog(ctx context.Context, id string) error {
	return c.do(ctx, "reopen_container_log", "reopen the log of container "+id, func(ctx context.Context) error {
		return c.runtime.ReopenContainerLog(ctx, id)
	})
}

// Exec returns the URL at which the runtime streams a command.
func (c *Client) Exec(ctx context.Context, request *runtimeapi.ExecRequest) (string, error) {
	var url string
	err := c.do(ctx, "exec", "prepare a command in container "+request.ContainerId, func(ctx context.Context) error {
		answer, err := c.runtime.Exec(ctx, request)
		url = answer.GetUrl()
		return err
	})
	return url, err
}

// Attach returns the URL at which the runtime streams a container's main process.
func (c *Client) Attach(ctx context.Context, request *runtimeapi.AttachRequest) (string, error) {
	var url string
	err := c.do(ctx, "attach", "attach to container "+request.ContainerId, func(ctx context.Context) error {
		answer, err := c.runtime.Attach(ctx, request)
		url = answer.GetUrl()
		return err
	})
	return url, err
}

// PortForward returns the URL at which the runtime forwards ports of a sandbox.
func (c *Client) PortForward(ctx context.Context, request *runtimeapi.PortForwardRequest) (string, error) {
	var url string
	err := c.do(ctx, "port_forward", "forward ports of sandbox "+request.PodSandboxId, func(ctx context.Context) error {
		answer, err := c.runtime.PortForward(ctx, request)
		url = answer.GetUrl()
		return err
	})
	return url, err
}

// ContainerStatus returns CRI's status of a container.
func (c *Client) ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	var answer *runtimeapi.ContainerStatusResponse
	err := c.do(ctx, "container_status", "ask for the status of container "+id, func(ctx context.Context) (err error) {
		if answer, err = c.runtime.ContainerStatus(ctx, id, false); err != nil {
			return err
		}
		return rightID(answer.GetStatus().GetId(), id)
	})
	return answer.GetStatus(), err
}

// SandboxStatus returns CRI's status of a sandbox.
func (c *Client) SandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error) {
	var answer *runtimeapi.PodSandboxStatusResponse
	err := c.do(ctx, "podsandbox_status", "ask for the status of sandbox "+id, func(ctx context.Context) (err error) {
		if answer, err = c.runtime.PodSandboxStatus(ctx, id, false); err != nil {
			return err
		}
		return rightID(answer.GetStatus().GetId(), id)
	})
	return answer.GetStatus(), err
}

// doUnlessNotFound is do for requests that succeed if the object does not exist.
func (c *Client) doUnlessNotFound(ctx context.Context, operation, what string, request func(ctx context.Context) error) error {
	return c.do(ctx, operation, what, func(ctx context.Context) error {
		if err := request(ctx); !IsNotFound(err) {
			return err
		}
		return nil
	})
}

// rightID refuses an answer about another object.
func rightID(got, want string) error {
	switch got {
	case want:
		return nil
	case "":
		return errors.New("the runtime has answered without a status")
	default:
		return fmt.Errorf("the runtime has answered with the status of %s", got)
	}
}

// wholeSeconds rounds up to seconds; a negative duration becomes zero.
func wholeSeconds(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return (d + time.Second - 1).Truncate(time.Second)
}
