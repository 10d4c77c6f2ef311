package volume

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// Usage is what a volume takes up. Sizes are in bytes.
type Usage struct {
	// Name is that of the volume in the pod's spec; Claim that of its
	// PersistentVolumeClaim, if it has one.
	Name, Claim string
	// Used and InodesUsed are the volume's own; the others are those of the
	// file system that it lies on.
	Used, Available, Capacity          uint64
	InodesUsed, InodesFree, InodeCount uint64
}

// measure is how the usage of a volume is found out.
type measure int

const (
	// measureNothing is for what is not the pod's own: a hostPath, a device.
	measureNothing measure = iota
	// measureWalk adds up the files of a directory on a file system that is
	// shared with others.
	measureWalk
	// measureFilesystem takes what the file system says of itself.
	measureFilesystem
)

// Usage measures the volumes of a pod that is mounted. An earlier measurement
// that is not older than Options.UsagePeriod is returned as it is, and must not
// be changed. It does not wait for a pod that is being mounted.
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
		u, err := measureVolume(ctx, v)
		if err != nil {
			failed = append(failed, fmt.Errorf("measuring volume %q: %w", v.name, err))
			continue
		}
		usage = append(usage, u)
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	// Unless it has been mounted anew meanwhile, or unmounted.
	if len(failed) == 0 && len(volumes) > 0 && len(pod.volumes) == len(volumes) && &pod.volumes[0] == &volumes[0] {
		pod.usage, pod.usedAt = usage, now
	}
	return usage, errors.Join(failed...)
}
