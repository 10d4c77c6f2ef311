package scheduler

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/reference"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/controllers/pods"
)

// eventRecorder records events, one at a time. A burst of decisions leaves a
// backlog of events, which must neither slow down binding nor be dropped, as it
// would be by the recorder that the controllers share. Similar events are counted
// in one object, and too many about one pod are dropped, as client-go does by
// default. An event that repeats the pod's last one is dropped for repeatInterval:
// the deletion of a pod may retry thousands of unschedulable pods in vain.
type eventRecorder struct {
	client     client.Client
	clock      clock.WithTicker
	scheme     *runtime.Scheme
	correlator *record.EventCorrelator
	// busy reports whether pods are being bound.
	busy func() bool

	mu      sync.Mutex
	last    *lru.Cache // the last podEvent by the UID of the pod
	backlog []queuedEvent
	dropped int
	more    chan struct{}
}

type queuedEvent struct {
	pod       *corev1.Pod
	component string
	eventType string
	podEvent
}

// podEvent is what an event is compared by.
type podEvent struct {
	reason, message string
	time            metav1.Time
}

const (
	// maxBacklog bounds the events that wait to be written. Events beyond it are
	// dropped.
	maxBacklog = 50_000
	// bindingPause is the time between two events while pods are being bound, so
	// that binding gets the API server first, unless the backlog is half full.
	bindingPause = 20 * time.Millisecond
	// repeatInterval is the time after which an equal event about the same pod is
	// recorded again. maxRemembered bounds the pods whose last event is remembered.
	repeatInterval = time.Minute
	maxRemembered  = 4096
	// maxMessage is the maximum length of an event's message in bytes.
	maxMessage = 1024
)

func newEventRecorder(c client.Client, clock clock.WithTicker, scheme *runtime.Scheme, busy func() bool) *eventRecorder {
	return &eventRecorder{
		client: c, clock: clock, scheme: scheme, busy: busy,
		correlator: record.NewEventCorrelator(clock),
		last:       lru.New(maxRemembered),
		more:       make(chan struct{}, 1),
	}
}

// enqueue enqueues an event about a pod. The component is the scheduler's name.
func (r *eventRecorder) enqueue(pod *corev1.Pod, component, eventType, reason, message string) {
	if ellipsis := " ..."; len(message) > maxMessage {
		message = message[:maxMessage-len(ellipsis)] + ellipsis
	}
	next := queuedEvent{pod, component, eventType, podEvent{reason, message, metav1.NewTime(r.clock.Now())}}
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, ok := r.last.Get(pod.UID); ok && next.repeats(last.(podEvent)) {
		return
	}
	if len(r.backlog) == maxBacklog {
		r.dropped++
		return
	}
	r.last.Add(pod.UID, next.podEvent)
	r.backlog = append(r.backlog, next)
	select {
	case r.more <- struct{}{}:
	default:
	}
}

func (e podEvent) repeats(last podEvent) bool {
	return e.reason == last.reason && e.message == last.message && e.time.Sub(last.time.Time) < repeatInterval
}

// run writes the enqueued events until ctx is done.
func (r *eventRecorder) run(ctx context.Context) {
	for ctx.Err() == nil {
		next, full, ok := r.take(ctx)
		if !ok {
			select {
			case <-r.more:
			case <-ctx.Done():
			}
			continue
		}
		if !full && r.busy() {
			select {
			case <-r.clock.After(bindingPause):
			case <-ctx.Done():
			}
		}
		// The API server rejects events in a terminating namespace.
		if err := r.record(ctx, next); err != nil && ctx.Err() == nil && !pods.NamespaceTerminates(err) {
			klog.FromContext(ctx).Error(err, "Failed to record event", "pod", klog.KObj(next.pod), "reason", next.reason)
		}
	}
}

// take removes the oldest event from the backlog, and reports whether the backlog
// was half full or more.
func (r *eventRecorder) take(ctx context.Context) (next queuedEvent, full, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dropped > 0 {
		klog.FromContext(ctx).Error(nil, "Dropped events because the backlog is full", "count", r.dropped)
		r.dropped = 0
	}
	if len(r.backlog) == 0 {
		r.backlog = nil
		return queuedEvent{}, false, false
	}
	next, full = r.backlog[0], len(r.backlog) >= maxBacklog/2
	r.backlog[0] = queuedEvent{}
	r.backlog = r.backlog[1:]
	return next, full, true
}

// record creates an event, or increments the count of an earlier similar one.
func (r *eventRecorder) record(ctx context.Context, next queuedEvent) error {
	event, err := r.event(next)
	if err != nil {
		return err
	}
	result, err := r.correlator.EventCorrelate(event)
	if err != nil || result.Skip {
		return err
	}
	event = result.Event.DeepCopy()
	counted := event.Count > 1
	if counted {
		err = r.client.Patch(ctx, event, client.RawPatch(types.StrategicMergePatchType, result.Patch))
	}
	// The earlier event may have expired.
	if !counted || apierrors.IsNotFound(err) {
		event.ResourceVersion = ""
		err = r.client.Create(ctx, event)
	}
	if err == nil {
		r.correlator.UpdateState(event)
	}
	return err
}

func (r *eventRecorder) event(next queuedEvent) (*corev1.Event, error) {
	about, err := reference.GetReference(r.scheme, next.pod)
	if err != nil {
		return nil, err
	}
	return &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: about.Namespace, Name: fmt.Sprintf("%s.%x", about.Name, next.time.UnixNano())},
		InvolvedObject:      *about,
		Type:                next.eventType,
		Reason:              next.reason,
		Message:             next.message,
		FirstTimestamp:      next.time,
		LastTimestamp:       next.time,
		Count:               1,
		Source:              corev1.EventSource{Component: next.component},
		ReportingController: next.component,
	}, nil
}
