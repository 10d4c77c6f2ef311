package svclet

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/podspec"
	"svc.dev/svc/svclet/source"
)

// recorder records events about pods and about the node.
type recorder struct {
	ctx  context.Context
	any  record.EventRecorder
	node string
}

// newRecorder makes one that writes events to the API until ctx is done or,
// without an API, only to the log. qps and burst bound what is written
// (--event-qps, --event-burst); 0 stands for their defaults.
func newRecorder(ctx context.Context, core rest.Interface, scheme *apiruntime.Scheme, node string, qps, burst int32) *recorder {
	defaults := config.Default()
	qps, burst = cmp.Or(qps, *defaults.EventRecordQPS), cmp.Or(burst, defaults.EventBurst)
	broadcaster := record.NewBroadcaster(record.WithContext(ctx),
		record.WithCorrelatorOptions(record.CorrelatorOptions{QPS: float32(qps), BurstSize: int(burst)}))
	broadcaster.StartStructuredLogging(3)
	if core != nil {
		broadcaster.StartRecordingToSink(sink{ctx, core})
	}
	context.AfterFunc(ctx, broadcaster.Shutdown)
	return &recorder{ctx, broadcaster.NewRecorder(scheme, corev1.EventSource{Component: component, Host: node}), node}
}

// component is what events and clients of the agent name.
const component = "svclet"

// Event records an event about a pod or one of its containers, unless the agent
// stops. It implements the recorders of the folders.
func (r *recorder) Event(p *corev1.Pod, e pod.Event) {
	if r.ctx.Err() != nil {
		return
	}
	about := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID,
		ResourceVersion: p.ResourceVersion, FieldPath: fieldPath(p, e.Container),
	}
	if source.IsStatic(p) {
		// The API knows a static pod by its hash; so do its events.
		about.UID = types.UID(p.Annotations[source.HashAnnotation])
	}
	r.any.Event(about, e.Type, e.Reason, e.Message)
}

// Node records an event about the node.
func (r *recorder) Node(kind, reason, message string) {
	r.any.Event(&corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: r.node, UID: types.UID(r.node)}, kind, reason, message)
}

// fieldPath is where a container is in its pod, as events name it.
func fieldPath(p *corev1.Pod, container string) string {
	list, c := podspec.Find(&p.Spec, container)
	if c == nil {
		return ""
	}
	return fmt.Sprintf("spec.%s{%s}", list, container)
}

// sink implements record.EventSink, whose methods take no context.
type sink struct {
	ctx  context.Context
	core rest.Interface
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
	return written, request.Do(s.ctx).Into(written)
}

// logged is the pod as log lines name it.
func logged(p *corev1.Pod) klog.ObjectRef { return klog.KObj(p) }
