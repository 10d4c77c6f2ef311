package server

import (
	"context"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/server/auth"
)

// Pods are the desired pods of this node.
type Pods interface {
	// List returns all of them, with static pods instead of their mirrors, and with
	// the statuses of this node. The caller must not modify them.
	List() []*corev1.Pod
	// Get returns one of them by its namespace and name.
	Get(namespace, name string) (*corev1.Pod, bool)
	// Translate returns the UID of the static pod whose mirror has this UID,
	// and the UID itself if there is none.
	Translate(uid types.UID) types.UID
	// Running returns the pods in the runtime, desired or not: see [RunningPod].
	Running(ctx context.Context) ([]*corev1.Pod, error)
}

// Runtime is the part of the container runtime's client that the server uses.
type Runtime interface {
	// Pod observes a pod now.
	Pod(ctx context.Context, uid types.UID) (pod.Observed, error)
	ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
	// Checkpoint writes the state of a container to a file; a timeout of zero is the
	// runtime's own.
	Checkpoint(ctx context.Context, id, location string, timeout time.Duration) error
	ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error)
	// Exec, Attach and PortForward return the URL at which the runtime serves the
	// stream.
	Exec(ctx context.Context, request *runtimeapi.ExecRequest) (string, error)
	Attach(ctx context.Context, request *runtimeapi.AttachRequest) (string, error)
	PortForward(ctx context.Context, request *runtimeapi.PortForwardRequest) (string, error)
}

// Stats returns statistics of the node and its pods.
type Stats interface {
	// Summary returns all statistics, or only those of CPU and memory.
	Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error)
}

// SyncLoop is the agent's main loop.
type SyncLoop interface {
	// Progress returns when the loop last made progress; zero before it has started.
	Progress() time.Time
}

// Parts are what the server serves. Stats, Configz, the metrics and Reviews may be
// nil; their paths then answer 404.
type Parts struct {
	Pods     Pods
	Runtime  Runtime
	Stats    Stats
	SyncLoop SyncLoop
	// Configz returns the configuration in force, for /configz.
	Configz func() any
	// Metrics, Resource, Cadvisor and Probes are served at /metrics,
	// /metrics/resource, /metrics/cadvisor and /metrics/probes.
	Metrics, Resource, Cadvisor, Probes prometheus.Gatherer
	// Reviews is needed for token reviews and for the authorization mode Webhook.
	Reviews auth.Reviews
	// SetVerbosity sets the log verbosity, for /debug/flags/v.
	SetVerbosity func(level string) error
	// Journal runs journalctl and writes what it prints, for queries of /logs/.
	Journal func(ctx context.Context, args []string, out io.Writer) error
	// Clock is used for the expiry of certificates and of cached reviews, and for the
	// limits of streams.
	Clock clock.WithDelayedExecution
	// Requests, if set, counts requests.
	Requests Requests
	// Tracer, if set, records spans of requests.
	Tracer trace.TracerProvider
}

// Requests counts requests.
type Requests interface {
	// Begin is called at the start of a request and returns the function to call at
	// its end. path is the first segment of the path, "other" for unknown ones.
	Begin(method, path, server string, longRunning bool) (end func())
}
