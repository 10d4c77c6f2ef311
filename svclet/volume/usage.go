package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/svclet/csi"
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
	// Health is what the CSI driver says of the volume's condition, nil if nothing.
	Health *csi.Health
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

// measurement is the newest one of a volume.
type measurement struct {
	usage Usage
	err   error
	// at is when it began; zero before the first has ended, and after one that failed.
	at time.Time
	// done is closed when the measurement in flight has ended; nil if there is none.
	done chan struct{}
	// late reports that the one in flight has been waited for in vain; outdated that the
	// volume has been mounted again meanwhile.
	late, outdated bool
}

// Usage measures the volumes of a mounted pod, and returns when ctx is done in any case: a
// file system that does not respond, that of an unreachable NFS server for example, blocks
// its own measurement alone, and is not waited for a second time. Its volume has the values
// of its last measurement, if there is one, and is in the error. Measurements are at most
// Options.UsagePeriod old otherwise. Usage does not wait for a mount in flight.
func (m *Manager) Usage(ctx context.Context, uid types.UID) ([]Usage, error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	pod := m.pods[uid]
	if pod == nil {
		return nil, nil
	}
	volumes := slices.DeleteFunc(slices.Clone(pod.volumes), func(v mountedVolume) bool { return v.measure == measureNothing })
	all := make([]*measurement, len(volumes))
	for i, v := range volumes {
		all[i] = m.measured(ctx, uid, pod, v)
	}
	for _, u := range all {
		m.await(ctx, u)
	}
	usage := []Usage{}
	var failed []error
	for i, u := range all {
		err := u.err
		if u.done != nil {
			u.late, err = true, errors.New("its file system or driver has not responded yet")
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("measuring volume %q: %w", volumes[i].name, err))
		}
		if !u.at.IsZero() {
			usage = append(usage, u.usage)
		}
	}
	return usage, errors.Join(failed...)
}

// await waits for a measurement in flight, unless that was in vain before. The caller holds
// the mutex, which is released meanwhile.
func (m *Manager) await(ctx context.Context, u *measurement) {
	done := u.done
	if done == nil || u.late {
		return
	}
	m.mutex.Unlock()
	defer m.mutex.Lock()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// measured returns the measurement of a volume, and begins it unless that is in flight or
// recent enough. The caller holds the mutex.
func (m *Manager) measured(ctx context.Context, uid types.UID, pod *state, v mountedVolume) *measurement {
	u, now := pod.measured[v.name], m.Clock.Now()
	switch {
	case u == nil:
		u = &measurement{}
		if pod.measured == nil {
			pod.measured = map[string]*measurement{}
		}
		pod.measured[v.name] = u
	case u.done != nil, !u.at.IsZero() && now.Sub(u.at) < m.UsagePeriod:
		return u
	}
	done := make(chan struct{})
	u.done, u.outdated = done, false
	go func() {
		usage, err := m.measure(context.WithoutCancel(ctx), uid, v)
		m.mutex.Lock()
		defer m.mutex.Unlock()
		u.usage, u.err, u.at = usage, err, now
		if err != nil || u.outdated {
			u.at = time.Time{}
		}
		u.done, u.late = nil, false
		close(done)
	}()
	return u
}

// AbnormalClaims returns, of each pod, the claims whose health CSI drivers have reported, and
// whether they are abnormal, as of their last measurements.
func (m *Manager) AbnormalClaims() map[types.UID]map[string]bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	all := map[types.UID]map[string]bool{}
	for uid, pod := range m.pods {
		for _, u := range pod.measured {
			if u.usage.Claim == "" || u.usage.Health == nil {
				continue
			}
			if all[uid] == nil {
				all[uid] = map[string]bool{}
			}
			all[uid][u.usage.Claim] = u.usage.Health.Abnormal
		}
	}
	return all
}

// measure measures one volume.
func (m *Manager) measure(ctx context.Context, uid types.UID, v mountedVolume) (Usage, error) {
	switch {
	case v.measure == measureWalk && m.Quotas != nil:
		return m.measureQuota(ctx, v)
	case v.measure != measureDriver:
		return m.measureFiles(ctx, v)
	}
	u, err := m.CSI.Usage(ctx, uid, v.driver)
	if u.Health != nil && u.Health.Abnormal && m.Abnormal != nil {
		m.Abnormal(uid, v.name, u.Health.Message)
	}
	return Usage{
		Name: v.name, Claim: v.claim, Used: u.Used, Available: u.Available, Capacity: u.Capacity,
		InodesUsed: u.InodesUsed, InodesFree: u.InodesFree, InodeCount: u.InodeCount, Health: u.Health,
	}, err
}

// measureQuota measures a volume by its project quota, or its files if it has none.
func (m *Manager) measureQuota(ctx context.Context, v mountedVolume) (Usage, error) {
	bytes, inodes, ok, err := m.Quotas.Usage(v.HostPath)
	if err != nil {
		return Usage{}, err
	}
	if !ok {
		return m.measureFiles(ctx, v)
	}
	v.measure = measureFilesystem
	u, err := m.measureFiles(ctx, v)
	u.Used, u.InodesUsed = bytes, inodes
	return u, err
}
