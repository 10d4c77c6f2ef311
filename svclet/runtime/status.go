package runtime

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Status is the runtime's own status.
type Status struct {
	// Conditions include at least RuntimeReady and NetworkReady (the constants are
	// runtimeapi's).
	Conditions []*runtimeapi.RuntimeCondition
	// Handlers are those that a RuntimeClass may name, including the default one,
	// whose name is empty. Older runtimes report none.
	Handlers []*runtimeapi.RuntimeHandler
	// Features is nil for older runtimes.
	Features *runtimeapi.RuntimeFeatures
}

// Condition returns the condition of the given type. If the runtime does not
// report it, its status is false.
func (s Status) Condition(kind string) *runtimeapi.RuntimeCondition {
	for _, condition := range s.Conditions {
		if condition.GetType() == kind {
			return condition
		}
	}
	return &runtimeapi.RuntimeCondition{Type: kind}
}

// Handler returns the runtime handler with this name, or nil if it does not exist
// or the runtime does not report handlers.
func (s Status) Handler(name string) *runtimeapi.RuntimeHandler {
	for _, handler := range s.Handlers {
		if handler.GetName() == name {
			return handler
		}
	}
	return nil
}

// Status requests the runtime's status.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var answer *runtimeapi.StatusResponse
	err := c.do(ctx, "status", "ask the runtime for its status", func(ctx context.Context) (err error) {
		answer, err = c.runtime.Status(ctx, false)
		return err
	})
	return Status{
		Conditions: answer.GetStatus().GetConditions(),
		Handlers:   answer.GetRuntimeHandlers(),
		Features:   answer.GetFeatures(),
	}, err
}

// CgroupDriver returns the runtime's cgroup driver, and false if the runtime does
// not report it.
func (c *Client) CgroupDriver(ctx context.Context) (runtimeapi.CgroupDriver, bool, error) {
	var answer *runtimeapi.RuntimeConfigResponse
	err := c.do(ctx, "runtime_config", "ask the runtime for its configuration", func(ctx context.Context) (err error) {
		answer, err = c.runtime.RuntimeConfig(ctx)
		return err
	})
	if IsUnimplemented(err) {
		return 0, false, nil
	}
	return answer.GetLinux().GetCgroupDriver(), err == nil && answer.GetLinux() != nil, err
}

// UpdateRuntimeConfig sets the node's range of pod addresses in the runtime.
func (c *Client) UpdateRuntimeConfig(ctx context.Context, podCIDR string) error {
	what := "tell the runtime the pod range " + podCIDR
	return c.do(ctx, "update_runtime_config", what, func(ctx context.Context) error {
		return c.runtime.UpdateRuntimeConfig(ctx, &runtimeapi.RuntimeConfig{
			NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: podCIDR},
		})
	})
}
