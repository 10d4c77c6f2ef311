package svclet

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/admit"
	"svc.dev/svc/svclet/eviction"
	"svc.dev/svc/svclet/pod"
)

// storagePeriod is how often what pods take up of the node's disk is compared
// with what they may, and evictionGrace what those have to stop that are ended
// for it, in seconds. Both are kubelet's.
const (
	storagePeriod       = 10 * time.Second
	evictionGrace int64 = 1
)

// limitStorage ends pods that take up more than they may. Where no pod has a
// limit, nothing is measured.
func (a *Agent) limitStorage(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.clock.After(storagePeriod):
		}
		if len(a.pods.bounded()) == 0 {
			continue
		}
		summary, err := a.stats.Summary(ctx, false)
		if err != nil {
			if ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "What pods take up of the disk cannot be measured")
			}
			continue
		}
		a.pods.limitStorage(summary)
	}
}

// bounded are the active pods with limits of storage that may be ended:
// critical ones may not.
func (p *pods) bounded() map[types.UID]*member {
	p.mu.Lock()
	defer p.mu.Unlock()
	bounded := map[types.UID]*member{}
	for uid, m := range p.workers {
		if m.isActive() && !m.evicted && !admit.Critical(m.wanted()) && eviction.HasStorageLimit(m.wanted()) {
			bounded[uid] = m
		}
	}
	return bounded
}

// limitStorage ends the pods of which the summary shows that they take up more
// than they may.
func (p *pods) limitStorage(summary *statsapi.Summary) {
	bounded := p.bounded()
	node := summary.Node.Fs
	for i := range summary.Pods {
		used := &summary.Pods[i]
		m := bounded[types.UID(used.PodRef.UID)]
		if m == nil {
			continue
		}
		images := summary.Node.Runtime
		apart := node != nil && images != nil && images.ImageFs != nil && !ptr.Equal(node.CapacityBytes, images.ImageFs.CapacityBytes)
		if violation := eviction.ExceededStorage(m.wanted(), used, apart); violation != nil {
			p.evict(m, violation)
		}
	}
}

// evict ends a pod that uses more than it may.
func (p *pods) evict(m *member, violation *eviction.Violation) {
	m.evicted = true
	p.events.Event(m.wanted(), pod.Event{Type: corev1.EventTypeWarning, Reason: eviction.Reason, Message: violation.Message})
	p.metrics.PodEvicted(violation.Signal)
	m.tell(func(machine *pod.Machine) {
		machine.Kill(eviction.Reason, violation.Message, "", ptr.To(evictionGrace))
	})
}
