package pod

import (
	"slices"
	"time"
)

// Pauses before an operation that has failed is asked for again; they double
// each time. What becomes of a container that cannot be started is told in
// backoff.go.
const (
	minRetry      = 500 * time.Millisecond
	maxRetry      = 10 * time.Second
	maxSetUpRetry = 2*time.Minute + 2*time.Second
)

// retry is the pause before an operation may be asked for again that has
// failed or, about a sandbox or container that is still there, had no effect.
type retry struct {
	kind     Kind
	id, name string
	delay    time.Duration
	// at is zero until the next call of Next, which has the time.
	at time.Time
}

// ask starts an operation, unless one with its key is under way that it does
// not replace, or one has failed a short while ago.
func (m *Machine) ask(o Operation) {
	key := o.Key()
	for i, f := range m.flight {
		if f.Key() != key {
			continue
		}
		if replaces(o, f) {
			m.flight[i] = o
			m.start = append(m.start, o)
		}
		return
	}
	for i := range m.retries {
		r := &m.retries[i]
		if !r.concerns(o) {
			continue
		}
		if r.at.IsZero() || r.at.Sub(m.now) > r.delay {
			r.at = m.now.Add(r.delay)
		}
		if r.at.After(m.now) {
			m.wakeAt(r.at)
			return
		}
	}
	m.flight = append(m.flight, o)
	m.start = append(m.start, o)
}

// replaces says whether an operation is to replace one of the same key.
func replaces(o, running Operation) bool {
	switch o.Kind {
	case Cancel:
		return running.Kind != Cancel
	case TearDown:
		return running.Kind == SetUp
	case StopContainer:
		return running.Kind == StopContainer && o.Grace < running.Grace
	default:
		return false
	}
}

func (r *retry) concerns(o Operation) bool {
	return r.kind == o.Kind && r.id == o.ID && r.name == o.Name
}

// settle remembers that an operation has failed, or forgets it.
func (m *Machine) settle(o Operation, failed bool) {
	again := failed || o.ID != ""
	limit := maxRetry
	if o.Kind == SetUp {
		limit = maxSetUpRetry
	}
	for i := range m.retries {
		r := &m.retries[i]
		if !r.concerns(o) {
			continue
		}
		if again {
			r.delay, r.at = min(2*r.delay, limit), time.Time{}
		} else {
			m.retries = slices.Delete(m.retries, i, i+1)
		}
		return
	}
	if again {
		m.retries = append(m.retries, retry{kind: o.Kind, id: o.ID, name: o.Name, delay: minRetry})
	}
}

// forget drops what is remembered of sandboxes and containers that are gone.
func (m *Machine) forget() {
	gone := func(id string) bool {
		return id != "" &&
			!slices.ContainsFunc(m.observed.Sandboxes, func(s Sandbox) bool { return s.ID == id }) &&
			!slices.ContainsFunc(m.observed.Containers, func(c Container) bool { return c.ID == id })
	}
	m.stopped = slices.DeleteFunc(m.stopped, gone)
	m.retries = slices.DeleteFunc(m.retries, func(r retry) bool { return gone(r.id) })
}

// inFlight says whether an operation of that kind is under way for the sandbox
// or container of that identity or, without one, for any.
func (m *Machine) inFlight(kind Kind, id string) bool {
	for _, o := range m.flight {
		if o.Kind == kind && (id == "" || o.ID == id) {
			return true
		}
	}
	return false
}

// starting returns the operation under way that starts the container of that
// name.
func (m *Machine) starting(name string) (Operation, bool) {
	for _, o := range m.flight {
		if o.Name == name && (o.Kind == StartContainer || o.Kind == Cancel) {
			return o, true
		}
	}
	return Operation{}, false
}

// stopping says whether any attempt of a container is being stopped.
func (m *Machine) stopping(c *container) bool {
	return slices.ContainsFunc(m.flight, func(o Operation) bool {
		return o.Name == c.spec.Name && (o.Kind == StopContainer || o.Kind == PreStop)
	})
}
