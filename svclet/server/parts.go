package server

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/server/auth"
)

// Pods are the pods that this node is to run.
type Pods interface {
	// List returns all of them, static pods as themselves rather than as their
	// mirrors, with the statuses that this node gives them. The caller does
	// not change them.
	List() []*corev1.Pod
	// Get returns one of them by its namespace and name.
	Get(namespace, name string) (*corev1.Pod, bool)
	// Translate returns the UID of the static pod whose mirror has this UID,
	// and the UID itself if there is none.
	Translate(uid types.UID) types.UID
	// Running returns what the runtime runs, wanted or not: see [RunningPod].
	Running(ctx context.Context) ([]*corev1.Pod, error)
}

// Runtime is what is needed of the container runtime.
type Runtime interface {
	// Pod looks at a pod afresh.
	Pod(ctx context.Context, uid types.UID) (pod.Observed, error)
	ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
	ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error)
	// Exec, Attach and PortForward return the address at which the runtime
	// serves the stream.
	Exec(ctx context.Context, request *runtimeapi.ExecRequest) (string, error)
	Attach(ctx context.Context, request *runtimeapi.AttachRequest) (string, error)
	PortForward(ctx context.Context, request *runtimeapi.PortForwardRequest) (string, error)
}

// Stats tells what the node and its pods use.
type Stats interface {
	// Summary returns everything that is known, or processors and memory
	// alone.
	Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error)
}

// SyncLoop is the agent's main loop.
type SyncLoop interface {
	// Progress returns when the loop has last gone round; zero before it has
	// started.
	Progress() time.Time
}

// Parts are what the server serves. Stats, Configz, the metrics and Reviews may
// be nil; their paths then answer 404.
type Parts struct {
	Pods     Pods
	Runtime  Runtime
	Stats    Stats
	SyncLoop SyncLoop
	// Configz returns the configuration in force, for /configz.
	Configz func() any
	// Metrics, Resource, Cadvisor and Probes are what /metrics,
	// /metrics/resource, /metrics/cadvisor and /metrics/probes serve.
	Metrics, Resource, Cadvisor, Probes prometheus.Gatherer
	// Reviews are needed where tokens are reviewed or the authorization mode is
	// Webhook.
	Reviews auth.Reviews
	// SetVerbosity sets the verbosity of logs, for /debug/flags/v.
	SetVerbosity func(level string) error
	// Clock is the time by which certificates expire and answers grow old.
	Clock clock.PassiveClock
	// Requests counts what is served. It may be nil.
	Requests Requests
}

// Requests is told of every request that is served.
type Requests interface {
	// Begin is called as a request begins; it returns what is to be called at
	// its end. Path is the first part of the path, "other" for unknown ones.
	Begin(method, path, server string, longRunning bool) (end func())
}
