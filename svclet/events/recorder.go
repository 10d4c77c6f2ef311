package events

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/source"
)

// Recorder records events about pods and about the node.
type Recorder struct {
	node string
	any  record.EventRecorder
	stop context.CancelFunc
}

// New returns a recorder that writes events to the API until ctx is done; if core
// is nil, in standalone mode, it only logs them. qps and burst limit the writes for
// all objects together (--event-qps, --event-burst); 0 means their defaults. For one
// object the library writes at most 25 events, and then one every 5 minutes. The
// caller ends the recorder with [Recorder.Stop].
func New(ctx context.Context, core rest.Interface, scheme *apiruntime.Scheme, node string, qps, burst int32) *Recorder {
	defaults := config.Default()
	qps, burst = cmp.Or(qps, *defaults.EventRecordQPS), cmp.Or(burst, defaults.EventBurst)
	// The broadcaster outlives ctx: it logs an error for each event after its end.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	broadcaster := record.NewBroadcaster(record.WithContext(life))
	broadcaster.StartStructuredLogging(3)
	if core != nil {
		broadcaster.StartRecordingToSink(sink{ctx, core, flowcontrol.NewTokenBucketRateLimiter(float32(qps), int(burst))})
	}
	library := broadcaster.NewRecorder(scheme, corev1.EventSource{Component: component, Host: node}).WithLogger(klog.FromContext(ctx))
	return &Recorder{node: node, any: until{ctx, library}, stop: stop}
}

// Stop ends the recorder. No event may follow.
func (r *Recorder) Stop() { r.stop() }

// Any returns a recorder of events about any object.
func (r *Recorder) Any() record.EventRecorder { return r.any }

// until is a recorder that drops events once ctx is done: operations that the agent
// cancels when it stops are not reported.
type until struct {
	ctx context.Context
	to  record.EventRecorder
}

// Event implements record.EventRecorder.
func (u until) Event(about apiruntime.Object, kind, reason, message string) {
	if u.ctx.Err() == nil {
		u.to.Event(about, kind, reason, message)
	}
}

// Eventf implements record.EventRecorder.
func (u until) Eventf(about apiruntime.Object, kind, reason, format string, args ...any) {
	u.Event(about, kind, reason, fmt.Sprintf(format, args...))
}

// AnnotatedEventf implements record.EventRecorder.
func (u until) AnnotatedEventf(about apiruntime.Object, annotations map[string]string, kind, reason, format string, args ...any) {
	if u.ctx.Err() == nil {
		u.to.AnnotatedEventf(about, annotations, kind, reason, format, args...)
	}
}

// component is the source of the agent's events.
const component = "svclet"

// Event records an event about a pod or one of its containers.
func (r *Recorder) Event(p *corev1.Pod, e pod.Event) {
	about := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID,
		ResourceVersion: p.ResourceVersion, FieldPath: fieldPath(p, e.Container),
	}
	if source.IsStatic(p) {
		// The UID of a mirror pod's events is the hash of its static pod.
		about.UID = types.UID(p.Annotations[source.HashAnnotation])
	}
	if e.Annotations == nil {
		r.any.Event(about, e.Type, e.Reason, e.Message)
		return
	}
	r.any.AnnotatedEventf(about, e.Annotations, e.Type, e.Reason, "%s", e.Message)
}

// Node records an event about the node.
func (r *Recorder) Node(kind, reason, message string) {
	r.any.Event(&corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: r.node, UID: types.UID(r.node)}, kind, reason, message)
}

// fieldPath returns the path of a container in its pod, empty for none.
func fieldPath(p *corev1.Pod, container string) string {
	list, c := podspec.Find(&p.Spec, container)
	if c == nil {
		return ""
	}
	return fmt.Sprintf("spec.%s{%s}", list, container)
}

// sink implements record.EventSink, whose methods take no context.
type sink struct {
	ctx   context.Context
	core  rest.Interface
	limit flowcontrol.RateLimiter
}

func (s sink) Create(event *corev1.Event) (*corev1.Event, error) {
	return s.do(s.core.Post().Namespace(event.Namespace).Resource("events").Body(event))
}

func (s sink) Update(event *corev1.Event) (*corev1.Event, error) {
	return s.do(s.core.Put().Namespace(event.Namespace).Resource("events").Name(event.Name).Body(event))
}

func (s sink) Patch(old *corev1.Event, data []byte) (*corev1.Event, error) {
	return s.do(s.core.Patch(types.StrategicMergePatchType).Namespace(old.Namespace).Resource("events").Name(old.Name).Body(data))
}

func (s sink) do(request *rest.Request) (*corev1.Event, error) {
	written := &corev1.Event{}
	err := request.Throttle(s.limit).Do(s.ctx).Into(written)
	if s.ctx.Err() != nil {
		return written, nil // The agent stops: the library must not retry.
	}
	return written, err
}
