package csi

import (
	"context"
	"fmt"
	"path/filepath"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/types"
)

// Usage is what a driver measures of a volume: bytes and inodes.
type Usage struct {
	Used, Available, Capacity          uint64
	InodesUsed, InodesFree, InodeCount uint64
	// Health is nil if the driver does not report it.
	Health *Health
}

// Health is what a driver says of the condition of a volume.
type Health struct {
	Abnormal bool
	Message  string
}

// Usage asks the driver of a published volume for its usage. volume is the name of the
// PersistentVolume.
func (m *Manager) Usage(ctx context.Context, uid types.UID, volume string) (Usage, error) {
	r, err := readRecord(filepath.Join(m.layout.volumes(uid), volume))
	if err != nil {
		return Usage{}, err
	}
	d, err := m.drivers.get(r.Driver)
	if err != nil {
		return Usage{}, err
	}
	request := &spec.NodeGetVolumeStatsRequest{VolumeId: r.Handle, VolumePath: m.layout.target(uid, r)}
	if r.Staged {
		request.StagingTargetPath = m.layout.staging(r.Driver, r.Handle)
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	stats, err := d.NodeGetVolumeStats(call, request)
	if err != nil {
		return Usage{}, fmt.Errorf("NodeGetVolumeStats of CSI driver %s: %w", r.Driver, err)
	}
	var usage Usage
	for _, u := range stats.GetUsage() {
		switch u.GetUnit() {
		case spec.VolumeUsage_BYTES:
			usage.Used, usage.Available, usage.Capacity = positive(u.GetUsed()), positive(u.GetAvailable()), positive(u.GetTotal())
		case spec.VolumeUsage_INODES:
			usage.InodesUsed, usage.InodesFree, usage.InodeCount = positive(u.GetUsed()), positive(u.GetAvailable()), positive(u.GetTotal())
		}
	}
	if m.o.Health && d.can(spec.NodeServiceCapability_RPC_VOLUME_CONDITION) {
		usage.Health = &Health{Abnormal: stats.GetVolumeCondition().GetAbnormal(), Message: stats.GetVolumeCondition().GetMessage()}
	}
	return usage, nil
}

func positive(n int64) uint64 { return uint64(max(n, 0)) } //nolint:gosec // bounded
