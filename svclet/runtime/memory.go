package runtime

import (
	"context"
	"hash/maphash"
	"reflect"

	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/svclet/pod"
)

// entry is what is remembered of one pod between looks at it.
type entry struct {
	// lock is held by the one look that is under way. It guards the fields up
	// to the empty line.
	lock     chan struct{}
	observed pod.Observed
	identity PodIdentity
	// sequence is that of the newest look.
	sequence uint64

	// The rest is guarded by Client.mu. users are the looks that hold the lock
	// or wait for it.
	users int
	// revision is the sequence of the first of the latest looks that have found
	// what observed holds; print is that of their newest listing.
	revision, print uint64
	// gone says that nothing of the pod has been found.
	gone bool
	// memory has an item for each sandbox and container that is there.
	memory map[string]memory
}

// memory is what is known of one sandbox or container. It holds for as long as
// its state does, unless an event or an operation says otherwise.
type memory struct {
	id string
	// since is Client.sequence as of when it was last forgotten or made: what a
	// listing says whose sequence is not above it may be older than that.
	since uint64
	// known says that the rest holds something.
	known     bool
	state     int32
	ips       []string
	container *pod.Container
}

// acquire waits until nobody else looks at the pod.
func (c *Client) acquire(ctx context.Context, uid types.UID) (*entry, error) {
	c.mu.Lock()
	e := c.entry(uid)
	e.users++
	c.mu.Unlock()
	select {
	case e.lock <- struct{}{}:
		return e, nil
	case <-ctx.Done():
		c.drop(uid, e)
		return nil, ctx.Err()
	}
}

// release lets the next look at the pod begin.
func (c *Client) release(uid types.UID, e *entry) {
	<-e.lock
	c.drop(uid, e)
}

// drop forgets a pod of which nothing is left, once nobody looks at it.
func (c *Client) drop(uid types.UID, e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.users--
	if e.users > 0 || !e.gone {
		return
	}
	delete(c.pods, uid)
	for id := range e.memory {
		delete(c.owners, id)
	}
}

// entry gives the entry of a pod. The caller holds mu.
func (c *Client) entry(uid types.UID) *entry {
	e := c.pods[uid]
	if e == nil {
		e = &entry{lock: make(chan struct{}, 1), memory: map[string]memory{}, gone: true}
		c.pods[uid] = e
	}
	return e
}

func (c *Client) nextSequence() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sequence++
	return c.sequence
}

// recall gives what is known of a sandbox or a container that is in the given
// state.
func (c *Client) recall(e *entry, id string, state int32) (memory, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := e.memory[id]
	return found, found.known && found.state == state
}

// remember keeps what a look has found, and gives its revision. What has been
// forgotten while the look was under way is not remembered again, and what was
// made meanwhile is not lost.
func (c *Client) remember(uid types.UID, e *entry, from *listing, observed pod.Observed, fresh []memory) uint64 {
	e.identity, e.sequence = from.identity, from.sequence
	changed := !reflect.DeepEqual(e.observed, observed)
	e.observed = observed
	c.mu.Lock()
	defer c.mu.Unlock()
	if changed || e.revision == 0 {
		e.revision = from.sequence
	}
	e.print = from.print
	there := make(map[string]bool, len(from.sandboxes)+len(from.containers))
	for _, sandbox := range from.sandboxes {
		there[sandbox.Id] = true
	}
	for _, container := range from.containers {
		there[container.Id] = true
	}
	for id := range there {
		if _, ok := e.memory[id]; !ok {
			e.memory[id] = memory{id: id}
		}
		c.owners[id] = uid
	}
	for _, found := range fresh {
		if e.memory[found.id].since < from.sequence {
			e.memory[found.id] = found
		}
	}
	for id, known := range e.memory {
		if !there[id] && known.since < from.sequence {
			delete(e.memory, id)
			delete(c.owners, id)
		}
	}
	e.gone = len(e.memory) == 0
	return e.revision
}

// own notes that the runtime has made a sandbox or a container for a pod.
func (c *Client) own(uid types.UID, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entry(uid)
	e.gone = false
	e.memory[id] = memory{id: id, since: c.sequence}
	c.owners[id] = uid
}

// forget makes the next look ask again for the status of a sandbox or a
// container, and gives its pod; empty if it is of none that is known.
func (c *Client) forget(id string) types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	uid := c.owners[id]
	if e := c.pods[uid]; e != nil {
		e.memory[id] = memory{id: id, since: c.sequence}
	}
	return uid
}

// known says whether it is known whose a sandbox or a container is.
func (c *Client) known(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owners[id] != ""
}

// doubtful lists the pods of which a listing of all pods says something else
// than the newest look at them, or whose revision has not been told.
func (c *Client) doubtful(listings map[types.UID]*listing, told map[types.UID]uint64) []types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	var doubtful []types.UID
	for uid, listing := range listings {
		e := c.pods[uid]
		if e == nil || e.revision != told[uid] || e.print != listing.print {
			doubtful = append(doubtful, uid)
		}
	}
	for uid := range told {
		if listings[uid] == nil {
			doubtful = append(doubtful, uid)
		}
	}
	for uid := range c.pods {
		if _, ok := told[uid]; !ok && listings[uid] == nil {
			doubtful = append(doubtful, uid)
		}
	}
	return doubtful
}

// fingerprint is that of one sandbox or container and its state. It is never 0.
func fingerprint(seed maphash.Seed, id string, state int32) uint64 {
	return maphash.Comparable(seed, struct {
		id    string
		state int32
	}{id, state}) | 1
}
