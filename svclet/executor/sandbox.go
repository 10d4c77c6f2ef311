package executor

import (
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/container"
	"svc.dev/svc/svclet/nodeconfig"
	"svc.dev/svc/svclet/pod"
)

func (e *Executor) createSandbox(ctx context.Context, p *corev1.Pod, op pod.Operation) pod.Result {
	const reason = "FailedCreatePodSandBox"
	handler, err := e.runtimeHandler(ctx, p)
	if err != nil {
		return failed(reason, fmt.Errorf("failed to get sandbox runtime: %w", err))
	}
	config, err := e.sandboxConfig(ctx, p, op.Attempt, handler)
	if err != nil {
		return failed(reason, fmt.Errorf("failed to create a sandbox for pod %q: %w", p.Name, err))
	}
	if err := os.MkdirAll(config.LogDirectory, 0o755); err != nil {
		return failed(reason, fmt.Errorf("failed to create a sandbox for pod %q: %w", p.Name, err))
	}
	if e.o.Claims != nil {
		if err := e.o.Claims.Prepare(ctx, p); err != nil {
			return failed("FailedPrepareDynamicResources", fmt.Errorf("failed to prepare dynamic resources: %w", err))
		}
	}
	began := e.o.Clock.Now()
	_, err = e.o.Runtime.RunSandbox(ctx, config, handler)
	e.o.Metrics.SandboxRun(handler, e.o.Clock.Since(began), err)
	return asResult(reason, err)
}

// sandboxConfig returns the configuration of an attempt of the pod's sandbox.
func (e *Executor) sandboxConfig(ctx context.Context, p *corev1.Pod, attempt uint32, handler string) (*runtimeapi.PodSandboxConfig, error) {
	r, err := e.resourcesOf(p.UID)
	if err != nil {
		return nil, err
	}
	volumes, err := e.volumesOf(p.UID)
	if err != nil {
		return nil, err
	}
	users, err := e.userNamespace(p, handler)
	if err != nil {
		return nil, err
	}
	options := e.containerOptions()
	if e.o.ClusterDNS != nil && container.UsesClusterDNS(&p.Spec) {
		if options.ClusterDNS, err = e.o.ClusterDNS(ctx); err != nil {
			return nil, err
		}
	}
	return container.Sandbox(container.SandboxInput{
		Options: options, Pod: p, Attempt: attempt,
		CgroupParent: r.cgroupParent, UserNamespace: users, SupplementalGroups: supplementalGroups(volumes),
		Warn: func(reason, message string) { e.warn(p, r, reason, message) },
	})
}

// userNamespace returns the user namespace of a pod with hostUsers: false, and nil for
// all others.
func (e *Executor) userNamespace(p *corev1.Pod, handler string) (*runtimeapi.UserNamespace, error) {
	switch {
	case ptr.Deref(p.Spec.HostUsers, true):
		return nil, nil
	case e.o.Users == nil:
		return nil, errors.New("can't set `spec.hostUsers: false`: the feature gate UserNamespacesStatelessPodsSupport is off on this node")
	case !nodeconfig.UserNamespaces(e.o.Node(), handler):
		return nil, fmt.Errorf("can't set `spec.hostUsers: false`, runtime does not support user namespaces (runtime handler %q; containerd 2.0 with runc 1.2 or newer does)", handler)
	}
	return e.o.Users.Namespace(p.UID)
}

// runtimeHandler returns the handler of the pod's RuntimeClass, empty for the
// runtime's default.
func (e *Executor) runtimeHandler(ctx context.Context, p *corev1.Pod) (string, error) {
	if name := p.Spec.RuntimeClassName; name != nil && *name != "" {
		return e.o.Objects.RuntimeHandler(ctx, *name)
	}
	return "", nil
}
