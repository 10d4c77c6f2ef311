package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

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

// Recording is the changes of the keys with a prefix, which it receives while they
// happen: what it has may be compacted.
type Recording struct {
	mu      sync.Mutex
	events  []Event
	err     error
	changed chan struct{} // closed and replaced with each change
}

// Record records the changes after a version until the context ends.
func Record(ctx context.Context, client *clientv3.Client, prefix string, after uint64) *Recording {
	r := &Recording{changed: make(chan struct{})}
	// Progress notifications are not asked for: each has a version that may not be in events.
	changes := client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithRev(int64(after)+1))
	go func() {
		for resp := range changes {
			r.add(eventsOf(resp))
		}
		r.add(nil, errEnded)
	}()
	return r
}

var errEnded = errors.New("the recording has ended")

func (r *Recording) add(events []Event, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, events...)
	if r.err == nil {
		r.err = err
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

// Version returns the version of the last change that it has, or 0 if it has none.
func (r *Recording) Version() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.events) == 0 {
		return 0
	}
	return r.events[len(r.events)-1].Version
}

// Until waits for the first change of which last is true, and returns the changes up to
// and with it.
func (r *Recording) Until(ctx context.Context, last func(Event) bool) ([]Event, error) {
	for {
		r.mu.Lock()
		events, err, changed := r.events, r.err, r.changed
		r.mu.Unlock()
		if i := slices.IndexFunc(events, last); i >= 0 {
			return events[:i+1], nil
		}
		if err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-changed:
		}
	}
}

// eventsOf returns the events of a response.
func eventsOf(resp clientv3.WatchResponse) ([]Event, error) {
	if err := resp.Err(); err != nil {
		return nil, err
	}
	var events []Event
	for _, e := range resp.Events {
		event, err := eventOf(e)
		if err != nil {
			return events, fmt.Errorf("%s: %w", e.Kv.Key, err)
		}
		events = append(events, event)
	}
	return events, nil
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
	accessor, err := decode(kv.Value)
	if err != nil {
		return Event{}, err
	}
	return Event{Type: kind, Object: ObjectOf(accessor, uint64(e.Kv.ModRevision))}, nil
}

// decode reads an object as it is stored: custom resources in JSON, kinds in protobuf.
func decode(value []byte) (metav1.Object, error) {
	if bytes.HasPrefix(value, []byte("{")) {
		var object metav1.PartialObjectMetadata
		err := json.Unmarshal(value, &object)
		return &object, err
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, nil)
	if err != nil {
		return nil, err
	}
	return meta.Accessor(object)
}
