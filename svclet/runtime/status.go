package runtime

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Status is what the runtime says of itself.
type Status struct {
	// Conditions are at least RuntimeReady and NetworkReady (the constants are
	// runtimeapi's).
	Conditions []*runtimeapi.RuntimeCondition
	// Handlers are those that a RuntimeClass may name, the default one, whose
	// name is empty, among them. Older runtimes tell none.
	Handlers []*runtimeapi.RuntimeHandler
	// Features are nil from older runtimes.
	Features *runtimeapi.RuntimeFeatures
}

// Condition gives the condition of the given type. Where the runtime does not
// tell it, its status is false.
func (s Status) Condition(kind string) *runtimeapi.RuntimeCondition {
	for _, condition := range s.Conditions {
		if condition.GetType() == kind {
			return condition
		}
	}
	return &runtimeapi.RuntimeCondition{Type: kind}
}

// Handler gives the runtime handler of the given name; nil if there is none or
// the runtime does not tell them.
func (s Status) Handler(name string) *runtimeapi.RuntimeHandler {
	for _, handler := range s.Handlers {
		if handler.GetName() == name {
			return handler
		}
	}
	return nil
}

// Status asks the runtime how it is.
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

// CgroupDriver asks the runtime which driver it makes cgroups with. It is
// false where the runtime does not tell.
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

// UpdateRuntimeConfig tells the runtime the node's range of pod addresses.
func (c *Client) UpdateRuntimeConfig(ctx context.Context, podCIDR string) error {
	what := "tell the runtime the pod range " + podCIDR
	return c.do(ctx, "update_runtime_config", what, func(ctx context.Context) error {
		return c.runtime.UpdateRuntimeConfig(ctx, &runtimeapi.RuntimeConfig{
			NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: podCIDR},
		})
	})
}
