package runtime

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListSandboxStats returns the resource usage of the sandboxes that match filter,
// with their containers; nil matches all of them.
func (c *Client) ListSandboxStats(ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	var stats []*runtimeapi.PodSandboxStats
	err := c.do(ctx, "list_podsandbox_stats", "list the stats of sandboxes", func(ctx context.Context) (err error) {
		stats, err = c.runtime.ListPodSandboxStats(ctx, filter)
		return err
	})
	return stats, err
}

// ListContainerStats returns the resource usage of the containers that match
// filter; nil matches all of them.
func (c *Client) ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	var stats []*runtimeapi.ContainerStats
	err := c.do(ctx, "list_container_stats", "list the stats of containers", func(ctx context.Context) (err error) {
		stats, err = c.runtime.ListContainerStats(ctx, filter)
		return err
	})
	return stats, err
}

// ContainerStats returns the resource usage of one container.
func (c *Client) ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error) {
	var stats *runtimeapi.ContainerStats
	err := c.do(ctx, "container_stats", "ask for the stats of container "+id, func(ctx context.Context) (err error) {
		stats, err = c.runtime.ContainerStats(ctx, id)
		return err
	})
	return stats, err
}
