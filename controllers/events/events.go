// Package events writes the events of controllers as Event objects, in any group
// domain.
package events

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Start returns a broadcaster that writes its events with c until ctx is done.
// Similar events are aggregated and too many about one object are dropped, with
// the defaults of client-go.
func Start(ctx context.Context, c client.Client) record.EventBroadcaster {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(sink{ctx, c})
	context.AfterFunc(ctx, broadcaster.Shutdown)
	return broadcaster
}

// sink implements record.EventSink, whose methods take no context.
type sink struct {
	ctx    context.Context
	client client.Client
}

func (s sink) Create(event *corev1.Event) (*corev1.Event, error) {
	event = event.DeepCopy()
	return event, s.client.Create(s.ctx, event)
}

func (s sink) Update(event *corev1.Event) (*corev1.Event, error) {
	event = event.DeepCopy()
	return event, s.client.Update(s.ctx, event)
}

func (s sink) Patch(old *corev1.Event, data []byte) (*corev1.Event, error) {
	event := old.DeepCopy()
	return event, s.client.Patch(s.ctx, event, client.RawPatch(types.StrategicMergePatchType, data))
}
