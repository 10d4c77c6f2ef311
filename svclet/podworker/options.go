package podworker

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/pod"
)

// Executor carries out operations. Its methods block, and are called from several
// goroutines.
type Executor interface {
	// Perform returns when the operation has ended, or soon after ctx is done. It
	// calls pulled with the time that pulls of images have taken.
	Perform(ctx context.Context, p *corev1.Pod, observed pod.Observed, op pod.Operation, pulled func(time.Duration)) pod.Result
	// Observe returns what the runtime holds of a pod now.
	Observe(ctx context.Context, uid types.UID) (pod.Observed, error)
	// Refresh updates the volumes of a pod. It returns soon after ctx is done.
	Refresh(ctx context.Context, p *corev1.Pod)
	// PodIP returns the primary IP address of a pod, empty for none.
	PodIP(p *corev1.Pod, observed pod.Observed) string
}

// Probes run the probes of pods.
type Probes interface {
	Sync(uid types.UID, p *corev1.Pod, podIP string, probes []pod.Probe)
	Remove(uid types.UID)
}

// Statuses write the statuses of pods to the API.
type Statuses interface {
	Set(p *corev1.Pod, status corev1.PodStatus)
	// Finish is called when nothing is left of a pod on this node.
	Finish(p *corev1.Pod)
}

// Logs are the logs of pods.
type Logs interface {
	RemovePod(uid types.UID) error
}

// Recorder records events about pods.
type Recorder interface {
	Event(p *corev1.Pod, e pod.Event)
}

// Metrics measure pods.
type Metrics interface {
	PodRunning(known, existed, pulling time.Duration)
	PodEvicted(signal string)
	// PodSynced is called after each sync: from an input until the machine has handled all of
	// them and no operation is in flight. cause is "create", "update", "sync" or "kill".
	PodSynced(cause string, took time.Duration)
}

// Listener learns of the end of pods. Its methods must not block.
type Listener interface {
	// PodEnded is called once, when no container of the pod runs any more and none
	// will.
	PodEnded()
	// PodReleased is called when nothing of a removed pod is left on this node. The
	// worker has stopped.
	PodReleased(w *Worker)
}

// Health tells the health of devices.
type Health interface {
	// Of returns that of the devices of a container of a pod, nil if it has none.
	Of(p *corev1.Pod, container string) []corev1.ResourceStatus
}

// Options are shared by the workers of a node. All fields are required, but for Health.
type Options struct {
	Executor Executor
	Probes   Probes
	Statuses Statuses
	Logs     Logs
	Events   Recorder
	Metrics  Metrics
	Listener Listener
	// Node returns what the statuses of pods show of the node now. It must not block.
	Node   func() pod.Node
	Health Health
	Clock  clock.WithDelayedExecution
	// Goroutines counts the goroutines of workers. They end soon after the context
	// of [New] is done.
	Goroutines *sync.WaitGroup
}

// Start is what is known of a pod when its worker starts.
type Start struct {
	Pod     *corev1.Pod
	Machine pod.Options
	// Known is when the agent learned of the pod.
	Known time.Time
	// Observed is the newest observation of the pod. If Unobserved is true there
	// is none because the runtime has failed to answer: the worker asks the runtime
	// before the machine decides anything.
	Observed   pod.Observed
	Unobserved bool
	// Adopted means that the pod ran before the agent started.
	Adopted bool
	// Orphaned means that no source has the pod, only the runtime or what is left
	// of it on the machine: it is removed, and no status is reported.
	Orphaned bool
	// Rejection is why the node does not admit the pod; nil if it does.
	Rejection *Rejection
	// Wait, if it is not nil, returns when the machine may start: when the pods
	// that this one preempts, or whose resources it gets, have ended. It returns a
	// rejection if the node does not admit the pod then, and returns soon after ctx is
	// done.
	Wait func(ctx context.Context) *Rejection
}

// Rejection is the reason and the message in the status of a pod that the node
// does not admit.
type Rejection struct{ Reason, Message string }
