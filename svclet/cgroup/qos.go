package cgroup

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// QOSUpdater keeps the cgroups of the QoS classes in line with the active pods. It
// writes in a goroutine of its own, so that a write that hangs delays nothing else,
// and only the newest state.
type QOSUpdater struct {
	update func(active []*corev1.Pod) error
	clock  clock.Clock
	resync time.Duration
	// changed has an element if active has not been written yet.
	changed chan struct{}

	mu     sync.Mutex
	active []*corev1.Pod
}

// NewQOSUpdater returns an updater that calls update, which is
// [Manager.UpdateClasses]. Resync is the period after which it is called although
// no pod has changed, as the kernel refuses a memory limit below what a class uses;
// 0 for never.
func NewQOSUpdater(update func(active []*corev1.Pod) error, c clock.Clock, resync time.Duration) *QOSUpdater {
	return &QOSUpdater{update: update, clock: c, resync: resync, changed: make(chan struct{}, 1)}
}

// SetActive replaces the pods that use resources of the node. It never blocks.
func (u *QOSUpdater) SetActive(pods []*corev1.Pod) {
	u.mu.Lock()
	u.active = pods
	u.mu.Unlock()
	select {
	case u.changed <- struct{}{}:
	default:
	}
}

// Run writes until ctx is done.
func (u *QOSUpdater) Run(ctx context.Context) {
	for {
		var resync <-chan time.Time
		stop := func() bool { return false }
		if u.resync > 0 {
			timer := u.clock.NewTimer(u.resync)
			resync, stop = timer.C(), timer.Stop
		}
		select {
		case <-ctx.Done():
			stop()
			return
		case <-u.changed:
			stop()
		case <-resync:
		}
		u.mu.Lock()
		active := u.active
		u.mu.Unlock()
		if err := u.update(active); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to update QoS cgroups")
		}
	}
}
