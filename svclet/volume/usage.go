package volume

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// Usage is the disk usage of a volume. Sizes are in bytes.
type Usage struct {
	// Name is the volume's name in the pod's spec; Claim is its PersistentVolumeClaim,
	// if it has one.
	Name, Claim string
	// Used and InodesUsed are the volume's own; the others are those of its file
	// system.
	Used, Available, Capacity          uint64
	InodesUsed, InodesFree, InodeCount uint64
}

// measure is how the usage of a volume is measured.
type measure int

const (
	// measureNothing is for volumes that are not the pod's own: a hostPath, a device.
	measureNothing measure = iota
	// measureWalk adds up the files of a directory on a shared file system.
	measureWalk
	// measureFilesystem uses the figures of the file system.
	measureFilesystem
	// measureDriver asks the CSI driver.
	measureDriver
)

// Usage measures the volumes of a mounted pod. It returns an earlier measurement
// that is at most Options.UsagePeriod old, which the caller must not modify. It
// does not wait for a mount in flight.
func (m *Manager) Usage(ctx context.Context, uid types.UID) ([]Usage, error) {
	m.mutex.Lock()
	pod := m.pods[uid]
	if pod == nil {
		m.mutex.Unlock()
		return nil, nil
	}
	volumes, usage, at := pod.volumes, pod.usage, pod.usedAt
	m.mutex.Unlock()
	now := m.Clock.Now()
	if usage != nil && now.Sub(at) < m.UsagePeriod {
		return usage, nil
	}
	usage = []Usage{}
	var failed []error
	for _, v := range volumes {
		if v.measure == measureNothing {
			continue
		}
		u, err := m.measure(ctx, uid, v)
		if err != nil {
			failed = append(failed, fmt.Errorf("measuring volume %q: %w", v.name, err))
			continue
		}
		usage = append(usage, u)
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	// Unless the volumes were mounted again or unmounted meanwhile.
	if len(failed) == 0 && len(volumes) > 0 && len(pod.volumes) == len(volumes) && &pod.volumes[0] == &volumes[0] {
		pod.usage, pod.usedAt = usage, now
	}
	return usage, errors.Join(failed...)
}

// measure measures one volume.
func (m *Manager) measure(ctx context.Context, uid types.UID, v mountedVolume) (Usage, error) {
	if v.measure != measureDriver {
		return measureVolume(ctx, v)
	}
	u, err := m.CSI.Usage(ctx, uid, v.driver)
	return Usage{
		Name: v.name, Claim: v.claim, Used: u.Used, Available: u.Available, Capacity: u.Capacity,
		InodesUsed: u.InodesUsed, InodesFree: u.InodesFree, InodeCount: u.InodeCount,
	}, err
}
