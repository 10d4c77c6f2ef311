package executor

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/probe"
)

// minimumGrace is the shortest grace period that the runtime is given: kubelet's
// minimumGracePeriodInSeconds.
const minimumGrace = 2 * time.Second

// stopContainer runs the preStop hook and stops the container, both within
// op.Grace, or kills it.
func (e *Executor) stopContainer(ctx context.Context, p *corev1.Pod, observed pod.Observed, op pod.Operation) pod.Result {
	grace := op.Grace
	if op.Kill {
		return asResult("FailedKillPod", e.o.Runtime.StopContainer(ctx, op.ID, 0))
	}
	if op.Hook {
		began := e.o.Clock.Now()
		e.preStop(ctx, p, observed, op)
		if ctx.Err() != nil {
			return failed("FailedKillPod", ctx.Err())
		}
		grace -= e.o.Clock.Since(began)
	}
	return asResult("FailedKillPod", e.o.Runtime.StopContainer(ctx, op.ID, max(grace, minimumGrace)))
}

// preStop runs the preStop hook of a container, if it has one, within op.Grace.
func (e *Executor) preStop(ctx context.Context, p *corev1.Pod, observed pod.Observed, op pod.Operation) {
	_, c := podspec.Find(&p.Spec, op.Name)
	if c == nil {
		c = observedContainer(observed, op.ID)
	}
	if c == nil || c.Lifecycle == nil || c.Lifecycle.PreStop == nil || op.Grace <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, op.Grace)
	defer cancel()
	if err := e.o.Hooks.Hook(ctx, probe.PreStop, p, c, op.ID, e.PodIP(p, observed)); err != nil {
		klog.FromContext(ctx).V(2).Info("PreStop hook failed", "pod", klog.KObj(p), "container", c.Name, "err", err)
	}
}

// observedContainer returns the part of a container's spec that its preStop hook
// needs, as the runtime has recorded it: orphaned pods have no spec. It returns nil
// if the container has no hook.
func observedContainer(observed pod.Observed, id string) *corev1.Container {
	for i := range observed.Containers {
		if c := &observed.Containers[i]; c.ID == id && c.PreStop != nil {
			return &corev1.Container{Name: c.Name, Ports: c.Ports, Lifecycle: &corev1.Lifecycle{PreStop: c.PreStop}}
		}
	}
	return nil
}

// removeContainer removes a container and, unless that is kept, its log.
func (e *Executor) removeContainer(ctx context.Context, p *corev1.Pod, op pod.Operation) pod.Result {
	if err := e.o.Runtime.RemoveContainer(ctx, op.ID); err != nil {
		return failed("FailedKillPod", err)
	}
	if op.KeepLog {
		return pod.Result{}
	}
	return asResult("FailedKillPod", e.o.Logs.Remove(Log(e.o.Containers, p, op.Name, op.ID, op.Attempt)))
}

// stopSandbox stops a sandbox. The addresses of the pod's last one may be those of another
// pod from then on, whether or not the volumes of this pod are kept.
func (e *Executor) stopSandbox(ctx context.Context, p *corev1.Pod, observed pod.Observed, op pod.Operation) pod.Result {
	if err := e.o.Runtime.StopSandbox(ctx, op.ID); err != nil || e.o.Network == nil {
		return asResult("FailedKillPod", err)
	}
	isOther := func(s pod.Sandbox) bool { return s.Ready && s.ID != op.ID }
	if slices.ContainsFunc(observed.Sandboxes, isOther) {
		// It may have been stopped at the same time.
		var err error
		if observed, err = e.Observe(ctx, p.UID); err != nil {
			return failed("FailedKillPod", err)
		}
	}
	if !slices.ContainsFunc(observed.Sandboxes, isOther) {
		e.o.Network.Release(p.UID)
	}
	return pod.Result{}
}
