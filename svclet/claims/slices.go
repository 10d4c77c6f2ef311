package claims

import (
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"
)

const (
	// slicesDelay is how long the ResourceSlices of a driver without a connected instance are kept:
	// kubelet's time for a driver to be updated.
	slicesDelay = 30 * time.Second
	// The bounds of the pause before another attempt to delete ResourceSlices: kubelet's.
	minSlicesRetry, maxSlicesRetry = time.Second, 5 * time.Minute
)

// Run deletes the ResourceSlices of drivers that are gone until ctx is done, and closes the
// connections to drivers then. It begins with those of all drivers, as kubelet does: none has
// registered, and perhaps none will. A driver publishes its own again.
func (m *Manager) Run(ctx context.Context) {
	defer m.Close()
	if m.o.DeleteSlices == nil {
		<-ctx.Done()
		return
	}
	m.deleteSlices(ctx, "")
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.changed:
			for name := m.nextDue(); name != ""; name = m.nextDue() {
				m.deleteSlices(ctx, name)
			}
		}
	}
}

// deleteSlices deletes the ResourceSlices of a driver, or of all, unless it is connected meanwhile.
func (m *Manager) deleteSlices(ctx context.Context, name string) {
	for pause := minSlicesRetry; ; pause = min(2*pause, maxSlicesRetry) {
		if name != "" && m.isConnected(name) {
			return
		}
		err := m.o.DeleteSlices(ctx, name)
		if err == nil || ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).Error(err, "Failed to delete the ResourceSlices of drivers that are gone, will retry", "driver", name, "after", pause)
		select {
		case <-ctx.Done():
			return
		case <-m.o.Clock.After(pause):
		}
	}
}

// syncSlices makes Run delete the ResourceSlices of a driver without a connected instance after
// slicesDelay, or keeps those of another. The caller holds mu.
func (m *Manager) syncSlices(name string) {
	timer := m.gone[name]
	switch {
	case m.o.DeleteSlices == nil:
	case m.hasConnected(name):
		if timer != nil {
			timer.Stop()
			delete(m.gone, name)
		}
	case timer == nil:
		m.gone[name] = m.o.Clock.AfterFunc(slicesDelay, func() { m.expire(name) })
	}
}

// expire makes Run delete the ResourceSlices of a driver.
func (m *Manager) expire(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.gone, name)
	m.due = append(m.due, name)
	select {
	case m.changed <- struct{}{}:
	default: // Run has not received the change before yet
	}
}

// nextDue returns a driver whose ResourceSlices are to be deleted, empty if there is none.
func (m *Manager) nextDue() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.due) == 0 {
		return ""
	}
	name := m.due[0]
	m.due = m.due[1:]
	return name
}

func (m *Manager) isConnected(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hasConnected(name)
}

// hasConnected reports whether an instance of a driver is connected. The caller holds mu.
func (m *Manager) hasConnected(name string) bool {
	return slices.ContainsFunc(m.drivers[name], func(d *driver) bool { return d.connections > 0 })
}
