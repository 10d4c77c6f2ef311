package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/tracing"
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/podworker"
)

// tracer is the name of the agent in the spans that it starts, and of its service.
const tracer = "svclet"

// newTracer makes what sends spans to a collector; nil if the configuration names none. It
// does not wait for the collector: spans that cannot be sent are lost.
func newTracer(ctx context.Context, base common) (tracing.TracerProvider, error) {
	c := base.Configuration.Tracing
	if c == nil {
		return nil, nil
	}
	of := resource.WithAttributes(
		attribute.String("service.name", tracer), attribute.String("service.version", base.Version), attribute.String("host.name", base.name))
	p, err := tracing.NewProvider(ctx, c, nil, []resource.Option{of})
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	return p, nil
}

// flushTimeout bounds how long the end of an agent waits for the collector of spans.
const flushTimeout = 2 * time.Second

// endTracing sends the spans that are left; an agent ends although its collector does not
// answer.
func endTracing(p tracing.TracerProvider) {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := p.Shutdown(ctx); err != nil {
		klog.Background().Info("Failed to send the last spans", "err", err)
	}
}

// traced records a span of each operation on a pod, which is the parent of the requests
// that it makes.
type traced struct {
	podworker.Executor
	tracer trace.Tracer
}

// withTracing returns the executor, or one that records spans of its operations.
func withTracing(e podworker.Executor, p tracing.TracerProvider) podworker.Executor {
	if p == nil {
		return e
	}
	return traced{e, p.Tracer(tracer)}
}

// Perform implements podworker.Executor.
func (t traced) Perform(ctx context.Context, p *corev1.Pod, observed pod.Observed, op pod.Operation, pulled func(time.Duration)) pod.Result {
	// The attributes are those of kubelet's span syncPod.
	ctx, span := t.tracer.Start(ctx, string(op.Kind), trace.WithAttributes(
		attribute.String("k8s.pod.uid", string(p.UID)), attribute.String("k8s.pod", klog.KObj(p).String()),
		attribute.String("k8s.pod.name", p.Name), attribute.String("k8s.namespace.name", p.Namespace)))
	defer span.End()
	if op.Name != "" {
		span.SetAttributes(attribute.String("k8s.container.name", op.Name))
	}
	result := t.Executor.Perform(ctx, p, observed, op, pulled)
	if result.Reason != "" {
		span.SetStatus(codes.Error, result.Reason)
		span.RecordError(errors.New(result.Message))
	}
	return result
}
