package eviction

import (
	"context"
	"maps"
	"slices"
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
// checked: kubelet's. In between, the node alone is measured each probePeriod.
const (
	period         = 10 * time.Second
	probePeriod    = time.Second
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
	// Released reports whether the node has got back everything that a pod used: its
	// volumes and the layers of its containers, too.
	Released(uid types.UID) bool
}

// Stats measure pods.
type Stats interface {
	Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error)
	// Probe measures only the resources of the node that thresholds are of.
	Probe() (*statsapi.Summary, error)
}

// Options are what a manager works with.
type Options struct {
	Pods  Pods
	Stats Stats
	// Cgroup measures the memory and the processes of a pod by its cgroup: of pods of which
	// Stats has none, because the runtime has just been started again or no container of them
	// runs. It may be nil.
	Cgroup func(pod *corev1.Pod) (*statsapi.PodStats, error)
	Clock  clock.Clock
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
	// Measured is called when a pod is evicted for a resource of the node, with the age of the
	// statistics by which it is. It may be nil.
	Measured func(signal string, age time.Duration)
	// Event records an event about the node.
	Event func(kind, reason, message string)
	// Notify calls crossed each time that the memory that the signal is of crosses a number of
	// bytes in use, until stop is called (--kernel-memcg-notification). It may be nil.
	Notify func(signal threshold.Signal, bytes int64, crossed func()) (stop func(), err error)
	// RemoveDead removes the terminated containers that are not needed, RemoveImages the
	// unused images. They report whether there was anything to remove, and may be nil.
	RemoveDead   func() bool
	RemoveImages func(ctx context.Context) (bool, error)
}

// Manager evicts pods that exceed their limits of local storage, and pods of a node
// whose resources run out.
type Manager struct {
	o        Options
	pressure *Pressure
	notices  notices
	// evicted are the active pods that have been evicted: they take a moment to end.
	evicted map[types.UID]bool
}

// NewManager returns a manager that does nothing before [Manager.Run].
func NewManager(o Options) *Manager {
	return &Manager{o: o, pressure: NewPressure(o.Thresholds, o.TransitionPeriod), notices: newNotices(), evicted: map[types.UID]bool{}}
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
	if summary == nil {
		return m.evictByCgroups(ctx)
	}
	m.forgetEnded()
	var starved *Starved
	if len(m.o.Thresholds) > 0 {
		starved = m.decide(summary)
	}
	if limited := m.evictLimited(summary); len(limited) > 0 {
		return m.awaitRelease(ctx, limited, nil, immediate)
	}
	if starved == nil {
		return false
	}
	m.announce(ctx, starved)
	if condition(starved.Threshold.Signal) == corev1.NodeDiskPressure {
		if disk := layoutOf(summary).partsOf(starved.Threshold.Signal); disk.images || disk.layers {
			if summary, starved = m.freeDisk(ctx, disk); starved == nil {
				return false // without the end of a pod
			}
		}
	}
	return m.evictOne(ctx, summary, starved)
}

// evictByCgroups evicts a pod of a node that has no memory or processes left while the runtime
// does not answer, as it may for that very reason: the cgroups of pods tell what they use of
// these. It reports what sync does.
func (m *Manager) evictByCgroups(ctx context.Context) (evicted bool) {
	if m.o.Cgroup == nil || len(m.o.Thresholds) == 0 || ctx.Err() != nil {
		return false
	}
	summary, err := m.o.Stats.Probe()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to probe the resources of the node")
		return false
	}
	m.forgetEnded()
	starved := m.decide(summary)
	if starved == nil || condition(starved.Threshold.Signal) == corev1.NodeDiskPressure {
		return false
	}
	m.announce(ctx, starved)
	return m.evictOne(ctx, summary, starved)
}

// announce logs what has to be reclaimed, and records an event.
func (m *Manager) announce(ctx context.Context, starved *Starved) {
	klog.FromContext(ctx).Info("Attempting to reclaim resource", "resource", starved.Resource, "signal", starved.Threshold.Signal, "threshold", starved.Quantity.String(), "available", starved.Available.String())
	m.o.Event(corev1.EventTypeWarning, "EvictionThresholdMet", "Attempting to reclaim "+string(starved.Resource))
}

// forgetEnded forgets the evicted pods that are not active any more.
func (m *Manager) forgetEnded() {
	active := map[types.UID]bool{}
	for _, p := range m.o.Pods.Active() {
		active[p.UID] = true
	}
	maps.DeleteFunc(m.evicted, func(uid types.UID, _ bool) bool { return !active[uid] })
}

// freeDisk removes what no pod uses from a disk, and returns what has to be reclaimed after
// that; nil if nothing has, or that is not known. The space of what is removed may be free a
// moment later.
func (m *Manager) freeDisk(ctx context.Context, disk parts) (summary *statsapi.Summary, starved *Starved) {
	removed := disk.layers && m.o.RemoveDead != nil && m.o.RemoveDead()
	if disk.images && m.o.RemoveImages != nil {
		images, err := m.o.RemoveImages(ctx)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Failed to remove unused images")
		}
		removed = removed || images
	}
	for last := !removed; ; last = true {
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
// whether they are. Pods that are ending already are not evicted again.
func (m *Manager) evictOne(ctx context.Context, summary *statsapi.Summary, starved *Starved) bool {
	active := slices.DeleteFunc(m.o.Pods.Active(), func(p *corev1.Pod) bool { return m.evicted[p.UID] })
	used := m.usage(ctx, active, summary, starved.Resource)
	ranked := Rank(active, used, starved.Resource, layoutOf(summary).partsOf(starved.Threshold.Signal))
	if len(ranked) == 0 {
		klog.FromContext(ctx).Info("No pod can be evicted to reclaim resource", "resource", starved.Resource)
		return false
	}
	p := ranked[0]
	message, annotations := Message(p, used[string(p.UID)], starved)
	e := pod.Eviction{Reason: Reason, Message: message, Annotations: annotations, Disruption: message, Signal: string(starved.Threshold.Signal), Grace: ptr.To(immediate)}
	grace := immediate
	if !starved.Threshold.Hard {
		e.Grace, grace = nil, ptr.Deref(p.Spec.TerminationGracePeriodSeconds, 0)
		if m.o.MaxPodGrace >= 0 {
			e.Grace, grace = ptr.To(m.o.MaxPodGrace), min(grace, m.o.MaxPodGrace)
		}
	}
	klog.FromContext(ctx).Info("Evicting pod", "pod", klog.KObj(p), "resource", starved.Resource)
	if at := summary.Node.Memory; m.o.Measured != nil && at != nil {
		m.o.Measured(string(starved.Threshold.Signal), m.o.Clock.Since(at.Time.Time))
	}
	m.evict(p.UID, e)
	return m.awaitRelease(ctx, []types.UID{p.UID}, starved, grace)
}

// usage returns the statistics of active pods. Those of memory and processes are measured by
// cgroups where the summary lacks them: a pod without statistics would be evicted first.
func (m *Manager) usage(ctx context.Context, active []*corev1.Pod, summary *statsapi.Summary, starved corev1.ResourceName) Usage {
	used := Usage{}
	for i := range summary.Pods {
		used[summary.Pods[i].PodRef.UID] = &summary.Pods[i]
	}
	if m.o.Cgroup == nil || starved != corev1.ResourceMemory && starved != resourcePIDs {
		return used
	}
	for _, p := range active {
		if _, known := excess(p, used[string(p.UID)], starved, parts{}); known {
			continue
		}
		measured, err := m.o.Cgroup(p)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Failed to measure the cgroup of pod, it is evicted first", "pod", klog.KObj(p))
			continue
		}
		used[string(p.UID)] = measured
	}
	return used
}

func (m *Manager) evict(uid types.UID, e pod.Eviction) {
	m.evicted[uid] = true
	m.o.Pods.Evict(uid, e)
}

// awaitRelease waits until the node has got back what evicted pods used, and reports whether
// the node is to be measured then: also before, when another hard threshold than that of
// starved, which is nil for none, is met. It waits for their grace period, in seconds, and
// [cleanupTimeout].
func (m *Manager) awaitRelease(ctx context.Context, uids []types.UID, starved *Starved, grace int64) bool {
	limit := m.o.Clock.Now().Add(pod.Seconds(grace) + cleanupTimeout)
	for {
		// At least once, so that the next summary is measured after the end of the pods.
		select {
		case <-ctx.Done():
			return false
		case <-m.o.Clock.After(cleanupPeriod):
		}
		if uids = slices.DeleteFunc(uids, m.o.Pods.Released); len(uids) == 0 || m.probe(ctx) && m.starvesOtherwise(ctx, starved) {
			return true
		}
		if m.o.Clock.Now().After(limit) {
			return false
		}
	}
}

// starvesOtherwise measures, sets the node's conditions, and reports whether what has to be
// reclaimed first is now that of another hard threshold than before.
func (m *Manager) starvesOtherwise(ctx context.Context, before *Starved) bool {
	summary := m.measure(ctx)
	if summary == nil {
		return false
	}
	now := m.decide(summary)
	return now != nil && now.Threshold.Hard && (before == nil || !before.Threshold.Hard || now.Threshold.Signal != before.Threshold.Signal)
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

// evictLimited evicts the pods that exceed their storage limits, and returns those that
// have not been evicted before.
func (m *Manager) evictLimited(summary *statsapi.Summary) (evicted []types.UID) {
	limited, separateImageFs := m.limited(), layoutOf(summary) != oneDisk
	for i := range summary.Pods {
		used := &summary.Pods[i]
		p := limited[types.UID(used.PodRef.UID)]
		if p == nil || m.evicted[p.UID] {
			continue
		}
		if v := ExceededStorage(p, used, separateImageFs); v != nil {
			m.evict(p.UID, pod.Eviction{Reason: Reason, Message: v.Message, Signal: v.Signal, Grace: ptr.To(immediate)})
			evicted = append(evicted, p.UID)
		}
	}
	return evicted
}
