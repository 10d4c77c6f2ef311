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
)

// The period in which the storage usage of pods is compared with their limits, and
// the grace period of pods that exceed them, in seconds: kubelet's.
const (
	storagePeriod       = 10 * time.Second
	gracePeriod   int64 = 1
)

// Pods are the pods of the node.
type Pods interface {
	// Active returns the pods that use resources of the node, or will.
	Active() []*corev1.Pod
	// Evict ends a pod within a grace period in seconds. It does nothing for a pod
	// that has been evicted before.
	Evict(uid types.UID, reason, message, signal string, grace int64)
}

// Stats measure pods.
type Stats interface {
	Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error)
}

// Manager evicts pods that exceed their limits of local storage.
type Manager struct {
	pods  Pods
	stats Stats
	clock clock.Clock
}

// NewManager returns a manager that does nothing before [Manager.Run].
func NewManager(pods Pods, stats Stats, c clock.Clock) *Manager {
	return &Manager{pods: pods, stats: stats, clock: c}
}

// Run evicts pods until ctx is done. It measures nothing while no pod has a limit.
func (m *Manager) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.clock.After(storagePeriod):
		}
		if len(m.limited()) == 0 {
			continue
		}
		summary, err := m.stats.Summary(ctx, false)
		if err != nil {
			if ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Failed to measure the storage usage of pods")
			}
			continue
		}
		m.evict(summary)
	}
}

// limited returns the pods with storage limits that may be evicted: critical pods
// may not.
func (m *Manager) limited() map[types.UID]*corev1.Pod {
	limited := map[types.UID]*corev1.Pod{}
	for _, p := range m.pods.Active() {
		if !admit.Critical(p) && HasStorageLimit(p) {
			limited[p.UID] = p
		}
	}
	return limited
}

// evict evicts the pods that exceed their storage limits by a summary.
func (m *Manager) evict(summary *statsapi.Summary) {
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
			m.pods.Evict(p.UID, Reason, v.Message, v.Signal, gracePeriod)
		}
	}
}
