package eviction

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/admit"
	"svc.dev/svc/svclet/eviction/threshold"
	"svc.dev/svc/svclet/pod"
)

// The period in which the node and its pods are measured, how long an evicted pod may
// take to release its resources before the next one is evicted, and how often that is
// checked: kubelet's.
const (
	period         = 10 * time.Second
	cleanupTimeout = 30 * time.Second
	cleanupPeriod  = time.Second
)

// immediate is the grace period, in seconds, of pods that exceed their own limits, and
// of those that are evicted by a hard threshold.
const immediate int64 = 1

// Pods are the pods of the node.
type Pods interface {
	// Active returns the pods that use resources of the node, or will.
	Active() []*corev1.Pod
	// Evict ends a pod. It does nothing for a pod that has been evicted before.
	Evict(uid types.UID, e pod.Eviction)
}

// Stats measure pods.
type Stats interface {
	Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error)
}

// Options are what a manager works with.
type Options struct {
	Pods  Pods
	Stats Stats
	Clock clock.Clock
	// Thresholds are those of the node; none turns eviction under pressure off.
	Thresholds []threshold.Threshold
	// TransitionPeriod is how long a pressure condition lasts after its thresholds were
	// last met; MaxPodGrace is the longest grace period, in seconds, of pods that a soft
	// threshold evicts. A negative one leaves the pod's own.
	TransitionPeriod time.Duration
	MaxPodGrace      int64
	// StorageLimits reports whether pods that exceed their own limits of local storage
	// are evicted (--local-storage-capacity-isolation).
	StorageLimits bool
	// Conditions are set by the manager; Changed is called after a change.
	Conditions *Conditions
	Changed    func()
	// Event records an event about the node.
	Event func(kind, reason, message string)
	// Notify calls crossed each time that the memory that the signal is of crosses a number of
	// bytes in use, until stop is called (--kernel-memcg-notification). It may be nil.
	Notify func(signal threshold.Signal, bytes int64, crossed func()) (stop func(), err error)
	// FreeDisk removes what no pod uses from the node's disks. It may be nil.
	FreeDisk func(ctx context.Context) error
}

// Manager evicts pods that exceed their limits of local storage, and pods of a node
// whose resources run out.
type Manager struct {
	o        Options
	pressure *Pressure
	notices  notices
}

// NewManager returns a manager that does nothing before [Manager.Run].
func NewManager(o Options) *Manager {
	return &Manager{o: o, pressure: NewPressure(o.Thresholds, o.TransitionPeriod), notices: newNotices()}
}

// Run evicts pods until ctx is done. It measures nothing while there is no threshold
// and no pod has a limit.
func (m *Manager) Run(ctx context.Context) {
	defer m.notices.stop()
	for {
		if !m.wait(ctx) {
			return
		}
		for m.sync(ctx) { // one pod at a time, until the node has no pressure
		}
	}
}

// sync measures once and acts. It reports whether it has evicted a pod for a resource of
// the node, whose end it has awaited.
func (m *Manager) sync(ctx context.Context) (evicted bool) {
	if len(m.o.Thresholds) == 0 && len(m.limited()) == 0 {
		return false
	}
	summary := m.measure(ctx)
	if summary == nil || m.evictLimited(summary) || len(m.o.Thresholds) == 0 {
		return false
	}
	starved := m.decide(summary)
	if starved == nil {
		return false
	}
	logger := klog.FromContext(ctx)
	logger.Info("Attempting to reclaim resource", "resource", starved.Resource, "signal", starved.Threshold.Signal, "threshold", starved.Quantity.String(), "available", starved.Available.String())
	m.o.Event(corev1.EventTypeWarning, "EvictionThresholdMet", "Attempting to reclaim "+string(starved.Resource))
	if condition(starved.Threshold.Signal) == corev1.NodeDiskPressure && m.o.FreeDisk != nil {
		if summary, starved = m.freeDisk(ctx); starved == nil {
			return false // without the end of a pod
		}
	}
	return m.evictOne(ctx, summary, starved)
}

// freeDisk removes what no pod uses, and returns what has to be reclaimed after that; nil if
// nothing has, or that is not known. The space of what is removed may be free a moment later.
func (m *Manager) freeDisk(ctx context.Context) (summary *statsapi.Summary, starved *Starved) {
	if err := m.o.FreeDisk(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to remove unused images")
	}
	for last := false; ; last = true {
		if summary = m.measure(ctx); summary == nil {
			return nil, nil
		}
		if starved = m.decide(summary); starved == nil || last {
			return summary, starved
		}
		select {
		case <-ctx.Done():
			return nil, nil
		case <-m.o.Clock.After(cleanupPeriod):
		}
	}
}

func (m *Manager) measure(ctx context.Context) *statsapi.Summary {
	summary, err := m.o.Stats.Summary(ctx, false)
	if err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to measure the resources of the node")
		}
		return nil
	}
	m.watch(ctx, summary)
	return summary
}

// decide sets the node's conditions, and returns what has to be reclaimed.
func (m *Manager) decide(summary *statsapi.Summary) *Starved {
	decision := m.pressure.Step(m.o.Clock.Now(), Observe(summary))
	if m.o.Conditions.set(decision.Conditions) {
		m.o.Changed()
	}
	return decision.Starved
}

// evictOne evicts the first pod by rank, waits until its resources are released, and reports
// whether there was a pod to evict.
func (m *Manager) evictOne(ctx context.Context, summary *statsapi.Summary, starved *Starved) bool {
	used := Usage{}
	for i := range summary.Pods {
		used[summary.Pods[i].PodRef.UID] = &summary.Pods[i]
	}
	ranked := Rank(m.o.Pods.Active(), used, starved.Resource)
	if len(ranked) == 0 {
		klog.FromContext(ctx).Info("No pod can be evicted to reclaim resource", "resource", starved.Resource)
		return false
	}
	p := ranked[0]
	message := Message(p, used[string(p.UID)], starved)
	e := pod.Eviction{Reason: Reason, Message: message, Disruption: message, Signal: string(starved.Threshold.Signal), Grace: ptr.To(immediate)}
	if !starved.Threshold.Hard {
		e.Grace = nil
		if m.o.MaxPodGrace >= 0 {
			e.Grace = ptr.To(m.o.MaxPodGrace)
		}
	}
	klog.FromContext(ctx).Info("Evicting pod", "pod", klog.KObj(p), "resource", starved.Resource)
	m.o.Pods.Evict(p.UID, e)
	return m.awaitEnd(ctx, p.UID)
}

// awaitEnd waits until a pod is not active any more, and reports whether that is so.
func (m *Manager) awaitEnd(ctx context.Context, uid types.UID) bool {
	limit := m.o.Clock.Now().Add(cleanupTimeout)
	for {
		// At least once, so that the next summary is measured after the end of the pod.
		select {
		case <-ctx.Done():
			return false
		case <-m.o.Clock.After(cleanupPeriod):
		}
		if !m.isActive(uid) {
			return true
		}
		if m.o.Clock.Now().After(limit) {
			return false
		}
	}
}

func (m *Manager) isActive(uid types.UID) bool {
	for _, p := range m.o.Pods.Active() {
		if p.UID == uid {
			return true
		}
	}
	return false
}

// limited returns the pods with storage limits that may be evicted: critical pods
// may not.
func (m *Manager) limited() map[types.UID]*corev1.Pod {
	limited := map[types.UID]*corev1.Pod{}
	if !m.o.StorageLimits {
		return limited
	}
	for _, p := range m.o.Pods.Active() {
		if !admit.Critical(p) && HasStorageLimit(p) {
			limited[p.UID] = p
		}
	}
	return limited
}

// evictLimited evicts the pods that exceed their storage limits, and reports whether
// there are any.
func (m *Manager) evictLimited(summary *statsapi.Summary) (evicted bool) {
	limited := m.limited()
	node, runtime := summary.Node.Fs, summary.Node.Runtime
	separateImageFs := node != nil && runtime != nil && runtime.ImageFs != nil && !ptr.Equal(node.CapacityBytes, runtime.ImageFs.CapacityBytes)
	for i := range summary.Pods {
		used := &summary.Pods[i]
		p := limited[types.UID(used.PodRef.UID)]
		if p == nil {
			continue
		}
		if v := ExceededStorage(p, used, separateImageFs); v != nil {
			m.o.Pods.Evict(p.UID, pod.Eviction{Reason: Reason, Message: v.Message, Signal: v.Signal, Grace: ptr.To(immediate)})
			evicted = true
		}
	}
	return evicted
}
