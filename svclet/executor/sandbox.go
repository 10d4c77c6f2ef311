package executor

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/svclet/container"
	"svc.dev/svc/svclet/pod"
)

func (e *Executor) createSandbox(ctx context.Context, p *corev1.Pod, op pod.Operation) pod.Result {
	const reason = "FailedCreatePodSandBox"
	config, err := e.sandboxConfig(p, op.Attempt)
	if err != nil {
		return failed(reason, fmt.Errorf("failed to create a sandbox for pod %q: %w", p.Name, err))
	}
	if err := os.MkdirAll(config.LogDirectory, 0o755); err != nil {
		return failed(reason, fmt.Errorf("failed to create a sandbox for pod %q: %w", p.Name, err))
	}
	handler, err := e.runtimeHandler(ctx, p)
	if err != nil {
		return failed(reason, fmt.Errorf("failed to get sandbox runtime: %w", err))
	}
	began := e.o.Clock.Now()
	_, err = e.o.Runtime.RunSandbox(ctx, config, handler)
	e.o.Metrics.SandboxRun(handler, e.o.Clock.Since(began), err)
	return asResult(reason, err)
}

// sandboxConfig returns the configuration of an attempt of the pod's sandbox.
func (e *Executor) sandboxConfig(p *corev1.Pod, attempt uint32) (*runtimeapi.PodSandboxConfig, error) {
	r, err := e.resourcesOf(p.UID)
	if err != nil {
		return nil, err
	}
	return container.Sandbox(container.SandboxInput{
		Options: e.containerOptions(), Pod: p, Attempt: attempt,
		CgroupParent: r.cgroupParent, SupplementalGroups: r.supplementalGroups(),
		Warn: func(reason, message string) { e.warn(p, r, reason, message) },
	})
}

// runtimeHandler returns the handler of the pod's RuntimeClass, empty for the
// runtime's default.
func (e *Executor) runtimeHandler(ctx context.Context, p *corev1.Pod) (string, error) {
	if name := p.Spec.RuntimeClassName; name != nil && *name != "" {
		return e.o.Objects.RuntimeHandler(ctx, *name)
	}
	return "", nil
}
