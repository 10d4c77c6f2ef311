//go:build !linux

package agent

import (
	"context"
	"errors"

	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
)

// serviceProxy logs that only Linux has a proxy of services.
func serviceProxy(ctx context.Context, _ common, _ *nodeServices, _ record.EventRecorder) []func(context.Context) {
	klog.FromContext(ctx).Error(errors.ErrUnsupported, "Services have no proxy on this node, which needs Linux")
	return nil
}

// removeServiceRules does nothing: only Linux has rules.
func removeServiceRules(string) error { return nil }
