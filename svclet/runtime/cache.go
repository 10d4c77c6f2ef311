package runtime

import (
	"context"
	"hash/maphash"
	"reflect"

	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/svclet/pod"
)

// entry is the cache of one pod between inspections.
type entry struct {
	// lock is held by the inspection in flight. It guards the fields up to the empty
	// line.
	lock     chan struct{}
	observed pod.Observed
	identity PodIdentity
	// sequence is the sequence of the newest inspection.
	sequence uint64

	// The following fields are guarded by Client.mu. users counts the inspections that
	// hold the lock or wait for it.
	users int
	// revision is the sequence of the first of the latest inspections that found the
	// same as observed; print is the fingerprint of their newest listing.
	revision, print uint64
	// gone reports that nothing of the pod was found.
	gone bool
	// statuses has an item for each sandbox and container that exists.
	statuses map[string]cachedStatus
}

// cachedStatus is the cached status of one sandbox or container. It is valid while
// the state stays the same, unless an event or an operation invalidates it.
type cachedStatus struct {
	id string
	// since is Client.sequence when the item was created or last invalidated: a
	// listing whose sequence is not higher may be older.
	since uint64
	// known reports that the following fields are set.
	known     bool
	state     int32
	ips       []string
	container *pod.Container
}

// acquire waits until no other inspection of the pod is in flight.
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

// release admits the next inspection of the pod.
func (c *Client) release(uid types.UID, e *entry) {
	<-e.lock
	c.drop(uid, e)
}

// drop removes the entry of a pod of which nothing is left, once no inspection
// uses it.
func (c *Client) drop(uid types.UID, e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.users--
	if e.users > 0 || !e.gone {
		return
	}
	delete(c.pods, uid)
	for id := range e.statuses {
		delete(c.owners, id)
	}
}

// entry returns the entry of a pod. The caller holds mu.
func (c *Client) entry(uid types.UID) *entry {
	e := c.pods[uid]
	if e == nil {
		e = &entry{lock: make(chan struct{}, 1), statuses: map[string]cachedStatus{}, gone: true}
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

// cached returns the cached status of a sandbox or a container that is in the
// given state.
func (c *Client) cached(e *entry, id string, state int32) (cachedStatus, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := e.statuses[id]
	return found, found.known && found.state == state
}

// store caches the result of an inspection and returns its revision. What was
// invalidated during the inspection is not cached, and what was created meanwhile
// is kept.
func (c *Client) store(uid types.UID, e *entry, from *listing, observed pod.Observed, fresh []cachedStatus) uint64 {
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
		if _, ok := e.statuses[id]; !ok {
			e.statuses[id] = cachedStatus{id: id}
		}
		c.owners[id] = uid
	}
	for _, found := range fresh {
		if e.statuses[found.id].since < from.sequence {
			e.statuses[found.id] = found
		}
	}
	for id, known := range e.statuses {
		if !there[id] && known.since < from.sequence {
			delete(e.statuses, id)
			delete(c.owners, id)
		}
	}
	e.gone = len(e.statuses) == 0
	return e.revision
}

// own records that the runtime has created a sandbox or a container for a pod.
func (c *Client) own(uid types.UID, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entry(uid)
	e.gone = false
	e.statuses[id] = cachedStatus{id: id, since: c.sequence}
	c.owners[id] = uid
}

// invalidate makes the next inspection request the status of a sandbox or a
// container again, and returns its pod, or "" if the pod is not known.
func (c *Client) invalidate(id string) types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	uid := c.owners[id]
	if e := c.pods[uid]; e != nil {
		e.statuses[id] = cachedStatus{id: id, since: c.sequence}
	}
	return uid
}

// known reports whether the pod of a sandbox or a container is known.
func (c *Client) known(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owners[id] != ""
}

// outdated returns the pods for which a relist differs from the newest inspection,
// or whose revision has not been reported.
func (c *Client) outdated(listings map[types.UID]*listing, reported map[types.UID]uint64) []types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	var outdated []types.UID
	for uid, listing := range listings {
		e := c.pods[uid]
		if e == nil || e.revision != reported[uid] || e.print != listing.print {
			outdated = append(outdated, uid)
		}
	}
	for uid := range reported {
		if listings[uid] == nil {
			outdated = append(outdated, uid)
		}
	}
	for uid := range c.pods {
		if _, ok := reported[uid]; !ok && listings[uid] == nil {
			outdated = append(outdated, uid)
		}
	}
	return outdated
}

// fingerprint returns the fingerprint of one sandbox or container and its state.
// It is never 0.
func fingerprint(seed maphash.Seed, id string, state int32) uint64 {
	return maphash.Comparable(seed, struct {
		id    string
		state int32
	}{id, state}) | 1
}
