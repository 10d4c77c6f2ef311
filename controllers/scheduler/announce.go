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

// announcer records events, one after the other: a burst of decisions leaves a
// backlog of events, which must neither slow binding down nor get lost, as it
// would in the recorder that the controllers share. Similar events are counted
// rather than written again, and too many about one pod are dropped, as
// client-go does by default. What has been said of a pod is not said again soon:
// a deleted pod may wake thousands that wait, in vain.
type announcer struct {
	client     client.Client
	clock      clock.WithTicker
	scheme     *runtime.Scheme
	component  string
	correlator *record.EventCorrelator
	// busy tells that pods are being bound.
	busy func() bool

	mu      sync.Mutex
	said    *lru.Cache // by UID of the pod, the last utterance
	backlog []announcement
	dropped int
	more    chan struct{}
}

type announcement struct {
	pod  *corev1.Pod
	kind string
	utterance
}

// utterance is what is remembered of an announcement.
type utterance struct {
	reason, message string
	time            metav1.Time
}

const (
	// maxBacklog bounds the events that wait to be written. What is announced
	// beyond it is not recorded.
	maxBacklog = 50_000
	// courtesy is the time between two events while pods are being bound, unless
	// the backlog is half full.
	courtesy = 20 * time.Millisecond
	// repetition is the time after which the same is said again of the same pod,
	// one of the last maxSaid.
	repetition = time.Minute
	maxSaid    = 4096
	// maxMessage is the length of a message in bytes that the API allows.
	maxMessage = 1024
)

func newAnnouncer(c client.Client, clock clock.WithTicker, scheme *runtime.Scheme, component string, busy func() bool) *announcer {
	return &announcer{
		client: c, clock: clock, scheme: scheme, component: component, busy: busy,
		correlator: record.NewEventCorrelator(clock),
		said:       lru.New(maxSaid),
		more:       make(chan struct{}, 1),
	}
}

// announce has an event about a pod recorded soon.
func (a *announcer) announce(pod *corev1.Pod, kind, reason, message string) {
	if ellipsis := " ..."; len(message) > maxMessage {
		message = message[:maxMessage-len(ellipsis)] + ellipsis
	}
	next := announcement{pod, kind, utterance{reason, message, metav1.NewTime(a.clock.Now())}}
	a.mu.Lock()
	defer a.mu.Unlock()
	if last, ok := a.said.Get(pod.UID); ok && next.repeats(last.(utterance)) {
		return
	}
	if len(a.backlog) == maxBacklog {
		a.dropped++
		return
	}
	a.said.Add(pod.UID, next.utterance)
	a.backlog = append(a.backlog, next)
	select {
	case a.more <- struct{}{}:
	default:
	}
}

func (u utterance) repeats(last utterance) bool {
	return u.reason == last.reason && u.message == last.message && u.time.Sub(last.time.Time) < repetition
}

// run records until ctx is done.
func (a *announcer) run(ctx context.Context) {
	for ctx.Err() == nil {
		next, full, ok := a.take(ctx)
		if !ok {
			select {
			case <-a.more:
			case <-ctx.Done():
			}
			continue
		}
		if !full && a.busy() {
			select {
			case <-a.clock.After(courtesy):
			case <-ctx.Done():
			}
		}
		// Nobody will look for events in a namespace that goes.
		if err := a.record(ctx, next); err != nil && ctx.Err() == nil && !pods.NamespaceGoes(err) {
			klog.FromContext(ctx).Error(err, "An event could not be recorded", "pod", klog.KObj(next.pod), "reason", next.reason)
		}
	}
}

// take removes the oldest announcement from the backlog, and tells whether that
// was half full or more.
func (a *announcer) take(ctx context.Context) (next announcement, full, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.dropped > 0 {
		klog.FromContext(ctx).Error(nil, "Too many events wait to be recorded: the newest were dropped", "dropped", a.dropped)
		a.dropped = 0
	}
	if len(a.backlog) == 0 {
		a.backlog = nil
		return announcement{}, false, false
	}
	next, full = a.backlog[0], len(a.backlog) >= maxBacklog/2
	a.backlog[0] = announcement{}
	a.backlog = a.backlog[1:]
	return next, full, true
}

// record writes an event, or counts it where it is like one before.
func (a *announcer) record(ctx context.Context, next announcement) error {
	event, err := a.event(next)
	if err != nil {
		return err
	}
	result, err := a.correlator.EventCorrelate(event)
	if err != nil || result.Skip {
		return err
	}
	event = result.Event.DeepCopy()
	counted := event.Count > 1
	if counted {
		err = a.client.Patch(ctx, event, client.RawPatch(types.StrategicMergePatchType, result.Patch))
	}
	// The event to be counted may have ended by now.
	if !counted || apierrors.IsNotFound(err) {
		event.ResourceVersion = ""
		err = a.client.Create(ctx, event)
	}
	if err == nil {
		a.correlator.UpdateState(event)
	}
	return err
}

func (a *announcer) event(next announcement) (*corev1.Event, error) {
	about, err := reference.GetReference(a.scheme, next.pod)
	if err != nil {
		return nil, err
	}
	return &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: about.Namespace, Name: fmt.Sprintf("%s.%x", about.Name, next.time.UnixNano())},
		InvolvedObject:      *about,
		Type:                next.kind,
		Reason:              next.reason,
		Message:             next.message,
		FirstTimestamp:      next.time,
		LastTimestamp:       next.time,
		Count:               1,
		Source:              corev1.EventSource{Component: a.component},
		ReportingController: a.component,
	}, nil
}
