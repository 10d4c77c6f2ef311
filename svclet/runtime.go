package svclet

import (
	"context"
	"errors"
	"time"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/node"
	"svc.dev/svc/svclet/runtime"
)

func (a *Agent) connectRuntime(ctx context.Context) error {
	var err error
	a.runtime, err = runtime.Connect(ctx, a.runtimeOptions())
	return err
}

// minSync is the shortest --sync-frequency that is heeded: the period of looking
// for changes in a runtime that tells of none.
const minSync = time.Second

func (a *Agent) runtimeOptions() runtime.Options {
	c := a.Configuration
	return runtime.Options{
		RuntimeEndpoint: c.ContainerRuntimeEndpoint,
		ImageEndpoint:   c.ImageServiceEndpoint,
		RequestTimeout:  c.RuntimeRequestTimeout.Duration,
		CheckPeriod:     max(c.SyncFrequency.Duration, minSync),
		Record:          a.metrics.RuntimeOperation,
	}
}

// runtimeStatus asks the runtime how it is. The node's status calls it, time and
// again.
func (a *Agent) runtimeStatus(ctx context.Context) (node.RuntimeStatus, error) {
	s, err := a.runtime.Status(ctx)
	if err != nil {
		return node.RuntimeStatus{}, err
	}
	version, err := a.runtime.Version(ctx)
	if err != nil {
		return node.RuntimeStatus{}, err
	}
	a.tellPodCIDR(ctx)
	return node.RuntimeStatus{
		Name: version.RuntimeName, Version: numbers(version.RuntimeVersion),
		Conditions: s.Conditions, Handlers: s.Handlers, Features: s.Features,
	}, nil
}

// numbers are those of a version. What distributions add to them is left out.
func numbers(text string) string {
	if v, err := utilversion.ParseSemantic(text); err == nil {
		return v.String()
	}
	if v, err := utilversion.ParseGeneric(text); err == nil {
		return v.String()
	}
	return text
}

// adopt learns which pods the runtime has from before. Without that, those
// would be started again.
func (a *Agent) adopt(ctx context.Context) error {
	for {
		held, err := a.runtime.Pods(ctx)
		if err == nil {
			for _, p := range held {
				a.pods.held[p.UID] = p
			}
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
		klog.FromContext(ctx).Error(err, "Waiting for the container runtime to say which pods it has")
		select {
		case <-ctx.Done():
			return nil
		case <-a.clock.After(time.Second):
		}
	}
}

func (a *Agent) watchRuntime(ctx context.Context) {
	if err := a.runtime.Watch(ctx, a.pods.observe); err != nil && !errors.Is(err, context.Canceled) {
		klog.FromContext(ctx).Error(err, "The container runtime is not watched any more")
	}
}
