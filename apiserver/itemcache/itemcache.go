// Package itemcache owns the encoded items of lists, and compressed sequences of them, so
// that a list that was encoded before is written from bytes.
package itemcache

import (
	"bytes"
	"context"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

const (
	// DefaultLimit bounds the bytes of a cache.
	DefaultLimit = 256 << 20
	// idle is the time after which an item that no list has used is dropped, and how
	// often Run looks for such items.
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
// fields or UID are not kept. That of a custom resource is found by the address of its
// map, which lists share with the store: to look into the maps of all items would take most
// of the time of a list.
//
// An item is kept the second time that it is encoded. What is listed once costs a mark,
// and objects that are decoded again for each list, as those that come from etcd are,
// do not replace items that other lists find.
//
// If the items of a list do not fit, those that do are kept: a cache that dropped the
// oldest would hold nothing that the next equal list needs.
type Cache struct {
	limit int
	clock clock.PassiveClock
	begun time.Time

	mu      sync.RWMutex
	classes map[Class]*class
	pieces  map[string]*piece // by the numbers of their items
	kept    uint64            // number of the last item that was kept
	size    int

	writing sync.Map // of *byte, the first one of a piece, to written
}

// class is not removed from the cache: their number is that of the types that are served.
type class struct {
	items map[types.UID]*item
	// custom are the items of custom resources that have data, by the addresses of their maps.
	custom map[uintptr]*item
}

func newClass() *class { return &class{items: map[types.UID]*item{}, custom: map[uintptr]*item{}} }

type item struct {
	fields any          // identity of the object that data encodes
	data   []byte       // nil if only seen is set
	custom any          // the map of the custom resource that data encodes: no other has its address
	number uint64       // of data, unique in the cache
	seen   any          // weak pointer to that of the last object that was encoded and not kept
	used   atomic.Int64 // in seconds since the cache began
}

// size is what the cache counts for an item.
func (i *item) size() int { return len(i.data) + overhead }

// New returns an empty cache for limit bytes.
func New(limit int, clock clock.PassiveClock) *Cache {
	return &Cache{limit: limit, clock: clock, begun: clock.Now(), classes: map[Class]*class{}, pieces: map[string]*piece{}}
}

// Run drops the items that no list has used for a minute, until ctx ends. A nil cache
// has none.
func (c *Cache) Run(ctx context.Context, clock clock.WithTicker) {
	if c == nil {
		return
	}
	ticker := clock.NewTicker(idle)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			c.sweep()
		}
	}
}

// second returns the seconds since the cache began. Changes of the time of day do not
// affect it.
func (c *Cache) second() int64 { return int64(c.clock.Since(c.begun) / time.Second) }

// List is the cache's part in encoding one list. It is not safe for concurrent use.
type List struct {
	cache  *Cache
	class  *class
	second int64
	// The items that were added since the last piece was written.
	numbers  []byte
	complete bool // all of them were found
	head     int  // bytes before the first piece
}

// Found is an item that was encoded before.
type Found struct {
	Data   []byte // nil if it is not kept
	number uint64
}

// List begins a list of a class. A nil cache returns a list that finds and keeps
// nothing.
func (c *Cache) List(of Class) *List {
	if c == nil {
		return &List{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.classes[of]
	if known == nil {
		known = newClass()
		c.classes[of] = known
	}
	return &List{cache: c, class: known, second: c.second(), numbers: make([]byte, 8), complete: true} // no item has the number 0
}

// identity returns what distinguishes the states of an object, or nil: the address of its
// managed fields, which in a custom resource are of type any.
func identity(obj metav1.Object) any {
	if obj.GetUID() == "" {
		return nil
	}
	if custom, ok := obj.(*unstructured.Unstructured); ok {
		metadata, _ := custom.Object["metadata"].(map[string]any)
		if fields, _ := metadata["managedFields"].([]any); len(fields) > 0 {
			return &fields[0]
		}
		return nil
	}
	if fields := obj.GetManagedFields(); len(fields) > 0 {
		return &fields[0]
	}
	return nil
}

// weakly returns a weak pointer for an identity.
func weakly(fields any) any {
	if custom, ok := fields.(*any); ok {
		return weak.Make(custom)
	}
	return weak.Make(fields.(*metav1.ManagedFieldsEntry))
}

// addressOf returns the address of the map of a custom resource.
func addressOf(custom any) uintptr { return reflect.ValueOf(custom).Pointer() }

// find returns the item with the data of an object, or nil.
func (c *class) find(obj metav1.Object) *item {
	if custom, ok := obj.(*unstructured.Unstructured); ok {
		return c.custom[addressOf(custom.Object)]
	}
	kept := c.items[obj.GetUID()]
	if kept == nil || kept.data == nil || kept.fields != identity(obj) {
		return nil
	}
	return kept
}

// findBy lets find return an item of a class for a custom resource, and no longer for the
// state before.
func (i *item) findBy(obj metav1.Object, c *class) {
	i.forget(c)
	if custom, ok := obj.(*unstructured.Unstructured); ok {
		i.custom = custom.Object
		c.custom[addressOf(i.custom)] = i
	}
}

// forget is the end of findBy.
func (i *item) forget(c *class) {
	if i.custom != nil {
		delete(c.custom, addressOf(i.custom))
	}
}

// Find sets found to the encoded items of objects.
func (l *List) Find(objects []metav1.Object, found []Found) {
	clear(found)
	if l.cache == nil {
		return
	}
	l.cache.mu.RLock()
	defer l.cache.mu.RUnlock()
	for i, obj := range objects {
		kept := l.class.find(obj)
		if kept == nil {
			continue
		}
		if kept.used.Load() < l.second {
			kept.used.Store(l.second)
		}
		found[i] = Found{kept.data, kept.number}
	}
}

// Keep keeps a copy of an encoded item that was not found, if the same object was
// encoded before and there is room.
func (l *List) Keep(obj metav1.Object, data []byte) {
	fields := identity(obj)
	if l.cache == nil || fields == nil {
		return
	}
	c, uid := l.cache, obj.GetUID()
	c.mu.Lock()
	defer c.mu.Unlock()
	known, seen := l.class.items[uid], weakly(fields)
	switch {
	case known == nil && c.size+overhead > c.limit:
		return
	case known == nil:
		known = &item{seen: seen}
		l.class.items[uid] = known
		c.size += known.size()
	case known.data != nil && known.fields == fields:
		return // kept by another list since Find
	case known.seen != seen:
		known.seen = seen
	case c.size-len(known.data)+len(data) <= c.limit:
		c.size += len(data) - len(known.data)
		c.kept++
		known.fields, known.data, known.number, known.seen = fields, bytes.Clone(data), c.kept, nil
		known.findBy(obj, l.class)
	}
	if known.data == nil || known.fields == fields { // other bytes have not been used
		known.used.Store(l.second)
	}
}

// sweep drops the items and pieces that no list has used for a while.
func (c *Cache) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	oldest := c.second() - int64(idle/time.Second)
	c.sweepPieces(oldest)
	for _, known := range c.classes {
		for uid, kept := range known.items {
			if kept.used.Load() < oldest {
				c.size -= kept.size()
				kept.forget(known)
				delete(known.items, uid)
			}
		}
		if len(known.items) == 0 {
			*known = *newClass() // a map does not shrink
		}
	}
}
