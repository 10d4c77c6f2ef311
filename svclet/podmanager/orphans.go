package podmanager

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/podworker"
	"svc.dev/svc/svclet/runtime"
)

// Leftovers are where removed pods may have left something on the machine.
type Leftovers struct {
	Volumes interface {
		// UIDs returns the pods that have a directory.
		UIDs() ([]types.UID, error)
	}
	Cgroups interface {
		// Pods returns the pods that have a cgroup.
		Pods() ([]types.UID, error)
	}
	Logs interface {
		podworker.Logs
		// Pods returns the pods that have logs.
		Pods() ([]types.UID, error)
		// Sweep removes the logs of all pods that are not known.
		Sweep(known func(types.UID) bool) error
	}
	// Claims is nil if no pod may have resource claims.
	Claims interface {
		// Pods returns the pods for which resource claims are prepared.
		Pods() []types.UID
	}
}

// removeOrphans ends the pods that no source has, once every source has delivered
// its pods.
func (m *Manager) removeOrphans(ctx context.Context) {
	for _, held := range m.adoptable {
		m.startOrphan(ctx, held)
	}
	clear(m.adoptable)
	m.goroutines.Go(func() { m.removeLeftovers(ctx) })
}

// startOrphan starts a worker that removes a pod that no source has.
func (m *Manager) startOrphan(ctx context.Context, orphan runtime.Pod) {
	m.startWorker(ctx, podworker.Start{
		Pod:     &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: orphan.UID, Namespace: orphan.Namespace, Name: orphan.Name}},
		Machine: m.o.Machine, Known: m.o.Clock.Now(),
		Observed: orphan.Observed, Unobserved: orphan.Err != nil, Orphaned: true,
	})
}

// removeLeftovers removes the directories, cgroups, logs and claims of pods that are not
// known. It reads files: it runs in a goroutine of its own.
func (m *Manager) removeLeftovers(ctx context.Context) {
	logger := klog.FromContext(ctx)
	withVolumes, err := m.o.Leftovers.Volumes.UIDs()
	if err != nil {
		logger.Error(err, "Failed to list pod directories")
	}
	withCgroups, err := m.o.Leftovers.Cgroups.Pods()
	if err != nil {
		logger.Error(err, "Failed to list pod cgroups")
	}
	withLogs, err := m.o.Leftovers.Logs.Pods()
	if err != nil {
		logger.Error(err, "Failed to list pod logs")
	}
	var withClaims []types.UID
	if m.o.Leftovers.Claims != nil {
		withClaims = m.o.Leftovers.Claims.Pods()
	}
	started := make(chan struct{})
	m.o.Queue.add(func(ctx context.Context, m *Manager) {
		defer close(started)
		for _, uid := range slices.Concat(withVolumes, withCgroups, withLogs, withClaims) {
			// Until its leftovers are removed, no pod of this UID starts.
			if !m.IsKnown(uid) {
				m.startOrphan(ctx, runtime.Pod{UID: uid})
			}
		}
	})
	select {
	case <-ctx.Done():
		return
	case <-started:
	}
	if err := m.o.Leftovers.Logs.Sweep(m.IsKnown); err != nil {
		logger.Error(err, "Failed to remove logs of unknown pods")
	}
}
