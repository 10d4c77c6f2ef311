package runtime

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// Watch calls changed with each pod that there is, and then with each that has
// changed; with an empty Observed when nothing is left of one. It goes on when
// the runtime is away, until the context ends, and returns the context's
// error.
//
// The calls come one after the other, and about one pod the newest last; what
// [Client.Pod] has found meanwhile may be newer still: Sequence tells. changed
// must not block.
func (c *Client) Watch(ctx context.Context, changed func(Pod)) error {
	w := &watcher{
		client:    c,
		changed:   changed,
		agenda:    agenda{},
		told:      map[types.UID]uint64{},
		names:     map[types.UID]PodIdentity{},
		strangers: map[string]bool{},
		looking:   map[types.UID]time.Time{},
		notices:   make(chan notice),
		lists:     make(chan listed),
		looks:     make(chan outcome),
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

// notice is what a source of events says.
type notice struct {
	// connected and disconnected say that events begin and cease to come.
	connected, disconnected bool
	// Otherwise it is an event about the sandbox or container id. uid is that
	// of its pod, if the source knows.
	id   string
	uid  types.UID
	want want
}

// listed is the outcome of a list of all pods.
type listed struct {
	listings map[types.UID]*listing
	err      error
}

// outcome is the outcome of a look at one pod.
type outcome struct {
	uid  types.UID
	seen looked
	err  error
}

// watcher is one call of Watch. Its fields belong to the goroutine of run.
type watcher struct {
	client  *Client
	changed func(Pod)
	agenda  agenda
	// told are the revisions that changed has been called with.
	told  map[types.UID]uint64
	names map[types.UID]PodIdentity

	// events says that events come; away, that the runtime did not answer.
	events, away bool
	// listAt is when all pods are to be listed. listing says that they are
	// being, and again that they are to be once more right after that.
	listAt         time.Time
	listing, again bool
	// strangers are sandboxes and containers that have started and of which it
	// is not known whose they are; strangersAt is when to see to them.
	strangers   map[string]bool
	strangersAt time.Time
	// failing says that the last list has failed.
	failing bool
	// looking are the looks that are under way, and when they began.
	looking map[types.UID]time.Time

	notices chan notice
	lists   chan listed
	looks   chan outcome
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
		case look := <-w.looks:
			w.looked(ctx, look, clock.Now())
		}
		timer.Stop()
	}
}

// start starts what is due, and says when something is due again.
func (w *watcher) start(ctx context.Context, now time.Time) time.Time {
	if !w.strangersAt.After(now) {
		w.introduce(now)
	}
	if !w.listing && !w.listAt.After(now) {
		w.listing = true
		go func() {
			listings, _, err := w.client.list(ctx, "")
			w.lists <- listed{listings: listings, err: err}
		}()
	}
	wake := now.Add(w.period())
	if !w.listing && w.listAt.Before(wake) {
		wake = w.listAt
	}
	if len(w.strangers) > 0 && w.strangersAt.Before(wake) {
		wake = w.strangersAt
	}
	for !w.away {
		if full := w.full(now); !full.IsZero() {
			if full.Before(wake) {
				wake = full
			}
			break
		}
		uid, it, soonest := w.agenda.next(now)
		if it == nil {
			if !soonest.IsZero() && soonest.Before(wake) {
				wake = soonest
			}
			break
		}
		w.looking[uid] = now
		given := it.listing
		go func() {
			seen, err := w.client.look(ctx, uid, given)
			w.looks <- outcome{uid: uid, seen: seen, err: err}
		}()
	}
	return wake
}

// full says until when no look may begin beside those that are under way, zero
// if one may now. One that takes long waits for a container that hangs, and
// keeps no other pod waiting.
func (w *watcher) full(now time.Time) time.Time {
	var quick int
	var soonest time.Time
	for _, began := range w.looking {
		until := began.Add(lookPatience)
		if !until.After(now) {
			continue
		}
		quick++
		if soonest.IsZero() || until.Before(soonest) {
			soonest = until
		}
	}
	if quick < looksAtOnce {
		return time.Time{}
	}
	return soonest
}

// period is the time from one list of all pods to the next.
func (w *watcher) period() time.Duration {
	if w.events && !w.away {
		return w.client.options.CheckPeriod
	}
	return w.client.options.PollPeriod
}

// wait waits for what has been started.
func (w *watcher) wait() {
	for len(w.looking) > 0 || w.listing {
		select {
		case <-w.notices:
		case <-w.lists:
			w.listing = false
		case look := <-w.looks:
			delete(w.looking, look.uid)
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
	uid := w.client.forget(n.id)
	if uid == "" {
		uid = n.uid
	}
	switch {
	case uid != "":
		w.agenda.event(uid, n.id, n.want)
	case n.want == started:
		if len(w.strangers) == 0 {
			w.strangersAt = now.Add(w.client.options.PollPeriod)
		}
		w.strangers[n.id] = true
	}
}

// introduce lists all pods if there are strangers left. Most are sandboxes that
// were still being made when they started.
func (w *watcher) introduce(now time.Time) {
	for id := range w.strangers {
		if !w.client.known(id) {
			w.listAt = now
		}
	}
	clear(w.strangers)
}

func (w *watcher) listed(ctx context.Context, list listed, now time.Time) {
	w.listing = false
	w.away = IsAway(list.err) || IsTimeout(list.err)
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
	for _, uid := range w.client.doubtful(list.listings, w.told) {
		w.agenda.listed(uid, list.listings[uid])
	}
}

func (w *watcher) looked(ctx context.Context, look outcome, now time.Time) {
	delete(w.looking, look.uid)
	switch {
	case look.err == nil:
		w.tell(look)
		w.agenda.looked(look.uid, look.seen.observed, now)
	case ctx.Err() != nil:
	case IsAway(look.err):
		w.away = true
		w.listAt = now
		w.agenda.failed(look.uid, now, false)
	default:
		klog.FromContext(ctx).Error(look.err, "Failed to get pod status from the container runtime, will retry", "pod", klog.KRef(w.names[look.uid].Namespace, w.names[look.uid].Name), "podUID", look.uid)
		w.agenda.failed(look.uid, now, true)
	}
}

// tell calls changed unless it knows already.
func (w *watcher) tell(look outcome) {
	observed := look.seen.observed
	if w.told[look.uid] == look.seen.revision {
		return
	}
	identity, known := w.names[look.uid]
	if !known {
		identity = look.seen.identity
	}
	if len(observed.Sandboxes)+len(observed.Containers) == 0 {
		delete(w.told, look.uid)
		delete(w.names, look.uid)
		if !known {
			return
		}
	} else {
		w.told[look.uid] = look.seen.revision
		w.names[look.uid] = identity
	}
	w.changed(Pod{UID: look.uid, Namespace: identity.Namespace, Name: identity.Name, Observed: observed})
}
