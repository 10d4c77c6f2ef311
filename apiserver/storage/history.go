package storage

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/clock"
)

const (
	// DefaultHistoryBytes is how much the history of a type's watch cache holds for
	// certain. At two KiB an object, it is 100 events a second for the 75 seconds that
	// the library keeps.
	DefaultHistoryBytes = 32 << 20
	// eventOverhead is about what an event takes besides its object: itself and its
	// snapshot of the cache's tree.
	eventOverhead = 2 << 10
)

// history bounds the history of one type's watch cache by bytes.
//
// The library keeps as many events as happened in a time (window), however large their
// objects are: its ring of events grows while it is full of events that were recorded
// within the window, and shrinks when its newest quarter spans more than that. Here each
// event takes at least as much of the window as it takes of the limit, so that the ring
// does not grow once it holds limit bytes, and shrinks when its newest quarter does.
// It never has fewer than the library's least number of events, 100.
//
// The record times of a burst are later than the machine's clock. The pause after it makes
// up for that, up to the window; what is beyond stays until the type has had no event for
// longer than the window. Besides, the library uses record times for the histograms of the
// time that an event takes through the watch cache only.
type history struct {
	clock  clock.PassiveClock
	window time.Duration
	limit  int

	mu    sync.Mutex
	last  time.Time     // the record time of the last event
	seen  time.Time     // the clock's time of the last event
	share time.Duration // of the last event in the window
	lead  time.Duration // by which record times are ahead since the last pause, at most window
}

// record returns the record time of an event that takes size bytes. It is later than
// that of the event before by the share of that one or, if more, by the time that has
// passed and that no burst has used: as in the library's own times, the ring shrinks in
// quiet times. More than the window need not pass.
func (h *history) record(size int) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock.Now()
	passed := now.Sub(h.seen)
	advance := max(h.share, min(passed-h.lead, h.window+time.Second))
	h.lead = min(max(h.lead+advance-passed, 0), h.window)
	at := h.last.Add(advance)
	if at.Before(now) {
		at = now
	}
	h.last, h.seen = at, now
	h.share = time.Duration(float64(h.window) * float64(size) / float64(h.limit))
	return at
}

// recordingCodec is the codec of a store below a watch cache. The store decodes the
// objects of events, and no others, without an object to decode into: these are returned
// with their record time, which the watch cache takes off.
type recordingCodec struct {
	runtime.Codec
	history *history
}

// Decode implements runtime.Decoder.
func (c recordingCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, kind, err := c.Codec.Decode(data, defaults, into)
	if err != nil || into != nil {
		return obj, kind, err
	}
	return &recordedObject{Object: obj, at: c.history.record(len(data) + eventOverhead)}, kind, nil
}

// recordedObject is the object of an event on its way from the store to the watch cache.
type recordedObject struct {
	runtime.Object
	at time.Time
}

var _ storage.WatchEventWithRecordTime = &recordedObject{}

// RecordTime implements storage.WatchEventWithRecordTime.
func (o *recordedObject) RecordTime() time.Time { return o.at }

// Unwrap implements storage.WatchEventWithRecordTime.
func (o *recordedObject) Unwrap() runtime.Object { return o.Object }

// GetObjectMeta implements metav1.ObjectMetaAccessor, by which the store sets the
// version of the object.
func (o *recordedObject) GetObjectMeta() metav1.Object {
	m, err := meta.Accessor(o.Object)
	if err != nil {
		return nil // the store reports that it cannot set the version
	}
	return m
}

// DeepCopyObject implements runtime.Object.
func (o *recordedObject) DeepCopyObject() runtime.Object {
	return &recordedObject{Object: o.Object.DeepCopyObject(), at: o.at}
}
