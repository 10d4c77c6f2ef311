//go:build !linux

package agent

import "context"

// podNetwork returns nothing: only Linux runs pods.
func podNetwork(context.Context, common, connections) tasks { return tasks{} }
