package runtime

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// Watch calls changed with every existing pod, and then with every pod that has
// changed; Observed is empty if nothing is left of a pod. It continues while the
// runtime is not available, until ctx is done, and returns the context's error.
//
// The calls are sequential and, for one pod, in order. [Client.Pod] may have
// returned something newer meanwhile: compare Sequence. changed must not block.
func (c *Client) Watch(ctx context.Context, changed func(Pod)) error {
	w := &watcher{
		client:          c,
		changed:         changed,
		inspectionQueue: inspectionQueue{},
		reported:        map[types.UID]uint64{},
		names:           map[types.UID]PodIdentity{},
		unknownIDs:      map[string]bool{},
		inspecting:      map[types.UID]time.Time{},
		notices:         make(chan notice),
		lists:           make(chan listed),
		inspections:     make(chan outcome),
	}
	ctx, cancel := context.WithCancel(ctx)
	listening := make(chan struct{})
	go func() {
		defer close(listening)
		c.listen(ctx, w.notices)
	}()
	err := w.run(ctx)
	cancel()
	<-listening
	return err
}

// notice is a notice of a change from an event source.
type notice struct {
	// connected and disconnected report that events start and stop arriving.
	connected, disconnected bool
	// Otherwise the notice is about the sandbox or container id. uid is its pod, if
	// the source knows it.
	id          string
	uid         types.UID
	expectation expectation
}

// listed is the result of a relist.
type listed struct {
	listings map[types.UID]*listing
	err      error
}

// outcome is the result of an inspection of one pod.
type outcome struct {
	uid  types.UID
	seen inspection
	err  error
}

// watcher is the state of one call of Watch. Its fields belong to the goroutine of
// run.
type watcher struct {
	client          *Client
	changed         func(Pod)
	inspectionQueue inspectionQueue
	// reported are the revisions that changed has been called with.
	reported map[types.UID]uint64
	names    map[types.UID]PodIdentity

	// events reports that events arrive; unavailable, that the runtime did not answer.
	events, unavailable bool
	// listAt is when the next relist is due. listing reports that one is in flight,
	// again that another one is due right after it.
	listAt         time.Time
	listing, again bool
	// listBegan is when the last relist began.
	listBegan time.Time
	// unknownIDs are started sandboxes and containers whose pod is not known;
	// unknownAt is when to resolve them.
	unknownIDs map[string]bool
	unknownAt  time.Time
	// failing reports that the last relist failed.
	failing bool
	// inspecting are the inspections in flight, and when they began.
	inspecting map[types.UID]time.Time

	notices     chan notice
	lists       chan listed
	inspections chan outcome
}

func (w *watcher) run(ctx context.Context) error {
	clock := w.client.options.Clock
	for {
		now := clock.Now()
		wake := w.start(ctx, now)
		timer := clock.NewTimer(wake.Sub(now))
		select {
		case <-ctx.Done():
			timer.Stop()
			w.wait()
			return ctx.Err()
		case <-timer.C():
		case notice := <-w.notices:
			w.noticed(notice, clock.Now())
		case list := <-w.lists:
			w.listed(ctx, list, clock.Now())
		case inspect := <-w.inspections:
			w.inspected(ctx, inspect, clock.Now())
		}
		timer.Stop()
	}
}

// start starts what is due, and returns when something is due next.
func (w *watcher) start(ctx context.Context, now time.Time) time.Time {
	if !w.unknownAt.After(now) {
		w.resolveUnknown(now)
	}
	if !w.listing && !w.listAt.After(now) {
		w.listing = true
		var interval time.Duration
		if !w.listBegan.IsZero() {
			interval = now.Sub(w.listBegan)
		}
		w.listBegan = now
		go func() {
			listings, _, err := w.client.list(ctx, "")
			w.client.options.Relisted(w.client.options.Clock.Since(now), interval)
			w.lists <- listed{listings: listings, err: err}
		}()
	}
	wake := now.Add(w.period())
	if !w.listing && w.listAt.Before(wake) {
		wake = w.listAt
	}
	if len(w.unknownIDs) > 0 && w.unknownAt.Before(wake) {
		wake = w.unknownAt
	}
	for !w.unavailable {
		if full := w.full(now); !full.IsZero() {
			if full.Before(wake) {
				wake = full
			}
			break
		}
		uid, it, soonest := w.inspectionQueue.next(now)
		if it == nil {
			if !soonest.IsZero() && soonest.Before(wake) {
				wake = soonest
			}
			break
		}
		w.inspecting[uid] = now
		given := it.listing
		go func() {
			seen, err := w.client.inspect(ctx, uid, given)
			w.inspections <- outcome{uid: uid, seen: seen, err: err}
		}()
	}
	return wake
}

// full returns until when no further inspection may start, or zero if one may
// start now. An inspection that takes long waits for a container that hangs, and
// does not delay other pods.
func (w *watcher) full(now time.Time) time.Time {
	var quick int
	var soonest time.Time
	for _, began := range w.inspecting {
		until := began.Add(slowInspection)
		if !until.After(now) {
			continue
		}
		quick++
		if soonest.IsZero() || until.Before(soonest) {
			soonest = until
		}
	}
	if quick < maxInspections {
		return time.Time{}
	}
	return soonest
}

// period is the relist period.
func (w *watcher) period() time.Duration {
	if w.events && !w.unavailable {
		return w.client.options.CheckPeriod
	}
	return w.client.options.PollPeriod
}

// wait waits for everything that was started.
func (w *watcher) wait() {
	for len(w.inspecting) > 0 || w.listing {
		select {
		case <-w.notices:
		case <-w.lists:
			w.listing = false
		case inspect := <-w.inspections:
			delete(w.inspecting, inspect.uid)
		}
	}
}

func (w *watcher) noticed(n notice, now time.Time) {
	if n.connected || n.disconnected {
		w.events = n.connected
		w.listAt = now
		w.again = w.listing
		return
	}
	uid := w.client.invalidate(n.id)
	if uid == "" {
		uid = n.uid
	}
	switch {
	case uid != "":
		w.inspectionQueue.event(uid, n.id, n.expectation)
	case n.expectation == started:
		if len(w.unknownIDs) == 0 {
			w.unknownAt = now.Add(w.client.options.PollPeriod)
		}
		w.unknownIDs[n.id] = true
	}
}

// resolveUnknown requests a relist if there are sandboxes or containers whose pod
// is still not known. Most are sandboxes that were still being created when their
// event arrived.
func (w *watcher) resolveUnknown(now time.Time) {
	for id := range w.unknownIDs {
		if !w.client.known(id) {
			w.listAt = now
		}
	}
	clear(w.unknownIDs)
}

func (w *watcher) listed(ctx context.Context, list listed, now time.Time) {
	w.listing = false
	w.unavailable = IsUnavailable(list.err) || IsTimeout(list.err)
	w.listAt = now.Add(w.period())
	if w.again {
		w.listAt, w.again = now, false
	}
	log := klog.FromContext(ctx)
	switch {
	case list.err == nil && w.failing:
		log.Info("Listing pods of the container runtime succeeded again")
	case list.err != nil && !w.failing && ctx.Err() == nil:
		log.Error(list.err, "Failed to list pods of the container runtime, will retry")
	}
	w.failing = list.err != nil
	if list.err != nil {
		w.listAt = now.Add(w.client.options.PollPeriod)
		return
	}
	for _, uid := range w.client.outdated(list.listings, w.reported) {
		w.inspectionQueue.listed(uid, list.listings[uid])
	}
}

func (w *watcher) inspected(ctx context.Context, inspect outcome, now time.Time) {
	delete(w.inspecting, inspect.uid)
	switch {
	case inspect.err == nil:
		w.report(inspect)
		w.inspectionQueue.inspected(inspect.uid, inspect.seen.observed, now)
	case ctx.Err() != nil:
	case IsUnavailable(inspect.err):
		w.unavailable = true
		w.listAt = now
		w.inspectionQueue.failed(inspect.uid, now, false)
	default:
		klog.FromContext(ctx).Error(inspect.err, "Failed to get pod status from the container runtime, will retry", "pod", klog.KRef(w.names[inspect.uid].Namespace, w.names[inspect.uid].Name), "podUID", inspect.uid)
		w.inspectionQueue.failed(inspect.uid, now, true)
	}
}

// report calls changed, unless this revision has been reported.
func (w *watcher) report(inspect outcome) {
	observed := inspect.seen.observed
	if w.reported[inspect.uid] == inspect.seen.revision {
		return
	}
	identity, known := w.names[inspect.uid]
	if !known {
		identity = inspect.seen.identity
	}
	if len(observed.Sandboxes)+len(observed.Containers) == 0 {
		delete(w.reported, inspect.uid)
		delete(w.names, inspect.uid)
		if !known {
			return
		}
	} else {
		w.reported[inspect.uid] = inspect.seen.revision
		w.names[inspect.uid] = identity
	}
	w.changed(Pod{UID: inspect.uid, Namespace: identity.Namespace, Name: identity.Name, Observed: observed})
}
