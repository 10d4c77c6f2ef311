// Package itemcache owns the encoded items of lists, so that a list that was encoded
// before is written from bytes.
package itemcache

import (
	"bytes"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

const (
	// DefaultLimit bounds the bytes of a cache.
	DefaultLimit = 64 << 20
	// repeat is the time within which a second list of a class is a repetition: its items
	// are kept.
	repeat = time.Minute
	// idle is the time after which an item that no list has used is dropped.
	idle = time.Minute
	// overhead is about what the cache holds for an item besides its bytes.
	overhead = 160
)

// Class distinguishes encodings of one object: by the Go type of the items, the version
// of the list and the media type.
type Class struct {
	Type       reflect.Type
	APIVersion string
	MediaType  string
}

// Cache holds encoded items, up to a number of bytes. An item is found by its UID and
// its managed fields: objects that were read from the store once share the slice of
// managed fields as long as no copy changes them, and a changed object has another. So
// an item is never older than the object that is encoded. Objects without managed
// fields or UID are not kept.
//
// If the items of a list do not fit, those that do are kept: a cache that dropped the
// oldest would hold nothing that the next equal list needs.
type Cache struct {
	limit int
	clock clock.PassiveClock

	mu      sync.RWMutex
	classes map[Class]*class
	size    int
	swept   time.Time
}

type class struct {
	listed time.Time // the last list
	items  map[types.UID]*item
}

type item struct {
	fields *metav1.ManagedFieldsEntry
	data   []byte
	used   atomic.Int64 // Unix time in seconds
}

// New returns an empty cache for limit bytes.
func New(limit int, clock clock.PassiveClock) *Cache {
	return &Cache{limit: limit, clock: clock, classes: map[Class]*class{}, swept: clock.Now()}
}

// List is the cache's part in encoding one list. It is not safe for concurrent use.
type List struct {
	cache *Cache
	class *class
	admit bool
	now   time.Time
}

// List begins a list of a class. A nil cache returns a list that finds and keeps
// nothing.
func (c *Cache) List(of Class) *List {
	if c == nil {
		return &List{}
	}
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.swept) > idle {
		c.sweepLocked(now)
	}
	known := c.classes[of]
	if known == nil {
		known = &class{items: map[types.UID]*item{}}
		c.classes[of] = known
	}
	l := &List{cache: c, class: known, admit: !known.listed.IsZero() && now.Sub(known.listed) <= repeat, now: now}
	known.listed = now
	return l
}

// Repeated reports whether the class was listed shortly before: items may be found and
// are kept.
func (l *List) Repeated() bool { return l.admit }

// identity returns what distinguishes the states of an object, or nil.
func identity(obj metav1.Object) *metav1.ManagedFieldsEntry {
	fields := obj.GetManagedFields()
	if len(fields) == 0 || obj.GetUID() == "" {
		return nil
	}
	return &fields[0]
}

// Find sets found to the encoded items of objects, or nil for those that are not kept.
func (l *List) Find(objects []metav1.Object, found [][]byte) {
	clear(found)
	if !l.admit {
		return
	}
	second := l.now.Unix()
	l.cache.mu.RLock()
	defer l.cache.mu.RUnlock()
	for i, obj := range objects {
		kept := l.class.items[obj.GetUID()]
		if kept == nil || kept.fields != identity(obj) {
			continue
		}
		if kept.used.Load() < second {
			kept.used.Store(second)
		}
		found[i] = kept.data
	}
}

// Keep keeps a copy of an encoded item, if the list is a repetition and there is room.
func (l *List) Keep(obj metav1.Object, data []byte) {
	fields := identity(obj)
	if !l.admit || fields == nil {
		return
	}
	c, uid := l.cache, obj.GetUID()
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := l.class.items[uid]; old != nil {
		c.size -= len(old.data) + overhead
		delete(l.class.items, uid)
	}
	if c.size+len(data)+overhead > c.limit {
		return
	}
	kept := &item{fields: fields, data: bytes.Clone(data)}
	kept.used.Store(l.now.Unix())
	l.class.items[uid] = kept
	c.size += len(data) + overhead
}

// sweepLocked drops the items that no list has used for a while, and classes without
// lists.
func (c *Cache) sweepLocked(now time.Time) {
	c.swept = now
	oldest := now.Add(-idle).Unix()
	for of, known := range c.classes {
		for uid, kept := range known.items {
			if kept.used.Load() < oldest {
				c.size -= len(kept.data) + overhead
				delete(known.items, uid)
			}
		}
		if len(known.items) == 0 && now.Sub(known.listed) > repeat {
			delete(c.classes, of)
		}
	}
}
