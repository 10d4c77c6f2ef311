package pod

import (
	"slices"
	"time"
)

// The back-off of an operation that failed; it doubles each time. The back-off of
// containers that fail to start is in backoff.go.
const (
	minRetry      = 500 * time.Millisecond
	maxRetry      = 10 * time.Second
	maxSetUpRetry = 2*time.Minute + 2*time.Second
)

// retry is the back-off of an operation that failed or, for a sandbox or container
// that still exists, had no effect.
type retry struct {
	kind     Kind
	id, name string
	delay    time.Duration
	// at is zero until the next call of Next, which has the time.
	at time.Time
}

// request starts an operation, unless one in flight has its key and is not to be
// replaced, or the operation is in back-off.
func (m *Machine) request(o Operation) {
	key := o.Key()
	for i, f := range m.operations {
		if f.Key() != key {
			continue
		}
		if replaces(o, f) {
			m.operations[i] = o
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
	m.operations = append(m.operations, o)
	m.start = append(m.start, o)
}

// replaces reports whether operation o replaces the operation in flight that has
// the same key.
func replaces(o, running Operation) bool {
	switch o.Kind {
	case Cancel:
		return running.Kind != Cancel
	case TearDown:
		return running.Kind == SetUp || running.Kind == ResizePod
	case PreStop:
		return running.Kind == PreStop && o.Grace < running.Grace
	case StopContainer:
		return running.Kind == ResizeContainer || (running.Kind == StopContainer || running.Kind == PreStop) && o.Grace < running.Grace
	default:
		return false
	}
}

func (r *retry) concerns(o Operation) bool {
	return r.kind == o.Kind && r.id == o.ID && r.name == o.Name
}

// recordOutcome starts or lengthens the back-off of an operation, or resets it after a
// success.
func (m *Machine) recordOutcome(o Operation, failed bool) {
	again := failed || o.ID != "" && o.Kind != ResizeContainer // which can be repeated
	limit := maxRetry
	if o.Kind == SetUp {
		limit = maxSetUpRetry
		stale := m.stale
		m.stale = false
		if stale && failed {
			return
		}
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

// forget drops the state of sandboxes and containers that no longer exist.
func (m *Machine) forget() {
	gone := func(id string) bool {
		return id != "" &&
			!slices.ContainsFunc(m.observed.Sandboxes, func(s Sandbox) bool { return s.ID == id }) &&
			!slices.ContainsFunc(m.observed.Containers, func(c Container) bool { return c.ID == id })
	}
	m.stopped = slices.DeleteFunc(m.stopped, gone)
	m.retries = slices.DeleteFunc(m.retries, func(r retry) bool { return gone(r.id) })
}

// inFlight reports whether an operation of this kind is in flight for the sandbox
// or container id or, without an id, for any.
func (m *Machine) inFlight(kind Kind, id string) bool {
	for _, o := range m.operations {
		if o.Kind == kind && (id == "" || o.ID == id) {
			return true
		}
	}
	return false
}

// starting returns the operation in flight that starts the container with this
// name.
func (m *Machine) starting(name string) (Operation, bool) {
	for _, o := range m.operations {
		if o.Name == name && (o.Kind == StartContainer || o.Kind == Cancel) {
			return o, true
		}
	}
	return Operation{}, false
}

// stopping reports whether an attempt of the container is being stopped.
func (m *Machine) stopping(c *container) bool {
	return slices.ContainsFunc(m.operations, func(o Operation) bool {
		return o.Name == c.spec.Name && (o.Kind == StopContainer || o.Kind == PreStop)
	})
}
