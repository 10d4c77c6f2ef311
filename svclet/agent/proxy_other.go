//go:build !linux

package agent

import (
	"context"
	"errors"

	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/nft"
)

// serviceProxy logs that only Linux has a proxy of services.
func serviceProxy(ctx context.Context, _ common, _ *nodeServices, _ record.EventRecorder) []func(context.Context) {
	klog.FromContext(ctx).Error(errors.ErrUnsupported, "Services have no proxy on this node, which needs Linux")
	return nil
}

// removeServiceRules returns what does nothing: only Linux has rules.
func removeServiceRules(*nft.Parameters) func(bridge string) error {
	return func(string) error { return nil }
}
