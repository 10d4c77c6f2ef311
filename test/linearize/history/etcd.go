package history

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// Objects have their value in an annotation, and what selectors select by in a label.
const (
	ValueAnnotation = "value"
	HalfLabel       = "half"
)

// ObjectOf returns what is compared of an object.
func ObjectOf(o metav1.Object, version uint64) Object {
	return Object{
		Key: o.GetName(), UID: string(o.GetUID()), Version: version,
		Value: o.GetAnnotations()[ValueAnnotation], Label: o.GetLabels()[HalfLabel],
	}
}

// FromEtcd reads the changes of the keys with a prefix after a version, up to and with
// the first of which last is true. etcd must not have compacted them.
func FromEtcd(ctx context.Context, client *clientv3.Client, prefix string, after uint64, last func(Event) bool) ([]Event, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var events []Event
	for resp := range client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithRev(int64(after)+1)) {
		if err := resp.Err(); err != nil {
			return nil, err
		}
		for _, e := range resp.Events {
			event, err := eventOf(e)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", e.Kv.Key, err)
			}
			events = append(events, event)
			if last(event) {
				return events, nil
			}
		}
	}
	return nil, ctx.Err()
}

// eventOf returns the event that a watch sends for one of etcd.
func eventOf(e *clientv3.Event) (Event, error) {
	kind, kv := Modified, e.Kv
	switch {
	case e.IsCreate():
		kind = Added
	case e.Type == clientv3.EventTypeDelete:
		kind, kv = Deleted, e.PrevKv
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(kv.Value, nil, nil)
	if err != nil {
		return Event{}, err
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return Event{}, err
	}
	return Event{Type: kind, Object: ObjectOf(accessor, uint64(e.Kv.ModRevision))}, nil
}
