package csi

import (
	"context"
	"fmt"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/klog/v2"
)

// allocatablePeriod is how often it is checked whether a driver is to be asked.
const allocatablePeriod = time.Minute

// RunAllocatable asks drivers periodically how many volumes the node may have, if their CSIDrivers
// say so (nodeAllocatableUpdatePeriodSeconds, KEP-4876), and writes that into the CSINode, until ctx
// is done.
func (m *Manager) RunAllocatable(ctx context.Context) {
	if m.o.Client == nil {
		return
	}
	due := map[string]time.Time{}
	for {
		pause := allocatablePeriod
		for _, d := range m.drivers.list() {
			next, err := m.updateAllocatable(ctx, d, due)
			if err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Failed to update how many volumes of a CSI driver the node may have, will retry", "driver", d.name)
			}
			pause = min(pause, next)
		}
		select {
		case <-ctx.Done():
			return
		case <-m.o.Clock.After(pause):
		}
	}
}

// updateAllocatable updates what a driver says of the node, if that is due, and returns the time
// until it is to be called again. due has when each driver is to be asked.
func (m *Manager) updateAllocatable(ctx context.Context, d *driver, due map[string]time.Time) (time.Duration, error) {
	object, err := m.csiDriver(ctx, d.name)
	if err != nil || object.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
		delete(due, d.name)
		return allocatablePeriod, err
	}
	period, now := time.Duration(*object.Spec.NodeAllocatableUpdatePeriodSeconds)*time.Second, m.o.Clock.Now()
	at, known := due[d.name]
	if !known || at.After(now.Add(period)) {
		at = now.Add(period)
		due[d.name] = at
	}
	if now.Before(at) {
		return at.Sub(now), nil
	}
	due[d.name] = now.Add(period)
	return period, m.askAllocatable(ctx, d)
}

// askAllocatable asks a driver how many volumes the node may have, and writes that into the
// CSINode.
func (m *Manager) askAllocatable(ctx context.Context, d *driver) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	info, err := d.NodeGetInfo(call, &spec.NodeGetInfoRequest{})
	if err != nil {
		return fmt.Errorf("NodeGetInfo: %w", err)
	}
	return m.publishNode(ctx, d.name, info)
}
