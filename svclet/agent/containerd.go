package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/containerd"
	"svc.dev/svc/svclet/image/load"
	"svc.dev/svc/svclet/image/pause"
)

// StartContainerd starts, or adopts, a containerd of the agent's own. It returns
// when sandboxes can run in it, with the built-in sandbox image.
func StartContainerd(ctx context.Context, c containerd.Config) (*containerd.Runtime, error) {
	c.SandboxImage = pause.Name
	started, err := containerd.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := load.ImportPause(ctx, started.Endpoint); err != nil {
		return nil, errors.Join(err, giveUp(ctx, started, started.Adopted))
	}
	return started, nil
}

// giveUp ends the use of a containerd after a failure: one that this start has started stops, and
// one that ran before runs on.
func giveUp(ctx context.Context, started interface {
	Close()
	Stop(ctx context.Context) error
}, adopted bool,
) error {
	if adopted {
		started.Close()
		return nil
	}
	return started.Stop(context.WithoutCancel(ctx))
}

// rulesInterval is the time between two checks of the iptables rules of pods.
const rulesInterval = time.Minute

// podRules returns what keeps the iptables rules of pods, without which their connections
// may not leave the machine, if the agent has a containerd of its own.
func podRules(base common) tasks {
	if base.Containerd == nil {
		return tasks{}
	}
	return tasks{parts: []func(context.Context){func(ctx context.Context) {
		keepRules(ctx, base.Clock, base.Containerd.EnsureRules)
	}}}
}

// keepRules calls a function that adds missing rules once a minute, until ctx is done. It
// logs what has been added, and each failure once.
func keepRules(ctx context.Context, c clock.WithTicker, ensure func(context.Context) (added bool, err error)) {
	tick := c.NewTicker(rulesInterval)
	defer tick.Stop()
	logger, failure := klog.FromContext(ctx), ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
		added, err := ensure(ctx)
		if ctx.Err() != nil {
			return
		}
		if added {
			logger.Info("Rules of iptables for pods were missing, added them again")
		}
		switch {
		case err == nil:
			failure = ""
		case err.Error() != failure:
			failure = err.Error()
			logger.Error(err, "Failed to add rules of iptables for pods, will retry")
		}
	}
}

// podCIDRWatchRetry is the pause after a watch of the Node has ended.
const podCIDRWatchRetry = time.Second

// followPodCIDRs configures the agent's own containerd with spec.podCIDRs of the
// Node as soon as the cluster has allocated them; they are immutable. It returns
// then, or when ctx is done.
func followPodCIDRs(ctx context.Context, base common, core rest.Interface) {
	logger := klog.FromContext(ctx)
	for {
		cidrs, err := awaitPodCIDRs(ctx, core, base.name)
		if len(cidrs) > 0 {
			warnings, err := base.Containerd.SetPodCIDRs(ctx, cidrs)
			if err != nil {
				logger.Error(err, "Failed to configure pod CIDRs in containerd", "podCIDRs", cidrs)
				return
			}
			logger.Info("Configured pod CIDRs in containerd", "podCIDRs", cidrs, "warnings", warnings)
			return
		}
		if err != nil && ctx.Err() == nil {
			logger.V(2).Info("Failed to watch the node for pod CIDRs, will retry", "node", klog.KRef("", base.name), "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-base.Clock.After(podCIDRWatchRetry):
		}
	}
}

// awaitPodCIDRs watches the Node until it has pod CIDRs. It returns none if the
// watch ends before.
func awaitPodCIDRs(ctx context.Context, core rest.Interface, name string) ([]string, error) {
	o := metav1.ListOptions{Watch: true, FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
	watching, err := core.Get().Resource("nodes").VersionedParams(&o, metav1.ParameterCodec).Watch(ctx)
	if err != nil {
		return nil, fmt.Errorf("watch the node: %w", err)
	}
	defer watching.Stop()
	for event := range watching.ResultChan() {
		if event.Type == watch.Error {
			return nil, fmt.Errorf("watch the node: %w", apierrors.FromObject(event.Object))
		}
		if n, ok := event.Object.(*corev1.Node); ok && event.Type != watch.Deleted && len(n.Spec.PodCIDRs) > 0 {
			return n.Spec.PodCIDRs, nil
		}
	}
	return nil, nil
}
