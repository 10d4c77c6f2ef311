package eviction

import (
	"context"

	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"svc.dev/svc/svclet/eviction/threshold"
)

// notices are the notifications of the kernel that memory runs out.
type notices struct {
	// crossed has an element after one.
	crossed chan struct{}
	stops   map[watched]func()
}

// watched is a number of bytes in use at which a threshold is met.
type watched struct {
	signal threshold.Signal
	bytes  int64
}

func newNotices() notices {
	return notices{crossed: make(chan struct{}, 1), stops: map[watched]func(){}}
}

func (n notices) stop() {
	for _, stop := range n.stops {
		stop()
	}
}

// wait waits until the node is to be measured: for a period, or until a threshold is met
// according to the kernel or to a probe, but never less than [probePeriod]. It reports
// whether it waited to the end: false when ctx is done.
func (m *Manager) wait(ctx context.Context) bool {
	next := m.o.Clock.NewTimer(period)
	defer next.Stop()
	var crossed <-chan struct{} // none in the first second
	for {
		select {
		case <-ctx.Done():
			return false
		case <-next.C():
			return true
		case <-crossed:
			return true
		case <-m.o.Clock.After(probePeriod):
		}
		if m.probe(ctx) {
			return true
		}
		crossed = m.notices.crossed
	}
}

// probe measures the node's own resources, and reports whether a threshold is newly met.
func (m *Manager) probe(ctx context.Context) bool {
	if len(m.o.Thresholds) == 0 {
		return false
	}
	summary, err := m.o.Stats.Probe()
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Failed to probe the resources of the node, they are measured periodically", "err", err, "period", period)
		return false
	}
	return m.pressure.crosses(Observe(summary))
}

// watch asks for a notification when a threshold of memory is met. The usage at which that
// is changes with the inactive files, which are in use and available.
func (m *Manager) watch(ctx context.Context, summary *statsapi.Summary) {
	if m.o.Notify == nil {
		return
	}
	wanted := map[watched]bool{}
	for signal, stats := range memoryOf(summary) {
		for _, t := range m.o.Thresholds {
			if t.Signal != signal {
				continue
			}
			if bytes := usageAt(t, stats); bytes > 0 {
				wanted[watched{signal, bytes}] = true
			}
		}
	}
	for at, stop := range m.notices.stops {
		if !wanted[at] {
			stop()
			delete(m.notices.stops, at)
		}
	}
	for at := range wanted {
		if m.notices.stops[at] != nil {
			continue
		}
		stop, err := m.o.Notify(at.signal, at.bytes, m.notify)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Failed to ask for notifications of memory usage, it is measured periodically", "signal", at.signal, "period", period)
			continue
		}
		m.notices.stops[at] = stop
	}
}

// notify wakes the manager.
func (m *Manager) notify() {
	select {
	case m.notices.crossed <- struct{}{}:
	default:
	}
}

// usageAt returns the usage, in bytes, at which a threshold of memory is met; 0 if it is
// not known.
func usageAt(t threshold.Threshold, m *statsapi.MemoryStats) int64 {
	if m == nil || m.UsageBytes == nil || m.AvailableBytes == nil || m.WorkingSetBytes == nil {
		return 0
	}
	capacity := int64(*m.AvailableBytes + *m.WorkingSetBytes) //nolint:gosec // no machine overflows int64
	value := t.Value.Of(capacity)
	return capacity - value.Value() + int64(*m.UsageBytes-*m.WorkingSetBytes) //nolint:gosec // see above
}
