package volume

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// refreshPeriod is how often volumes are refreshed whose changes no watch delivers: tokens that
// CSI drivers require to be republished, volumes that have been expanded, and those of ephemeral
// containers that could not be mounted. Kubelet syncs a pod about as often.
const refreshPeriod = time.Minute

// Run calls changed periodically with the pods whose volumes may have to be refreshed, until ctx
// is done. changed must not block.
func (m *Manager) Run(ctx context.Context, changed func([]types.UID)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.Clock.After(refreshPeriod):
		}
		if pods := m.refreshed(); len(pods) > 0 {
			changed(pods)
		}
	}
}

// isRefreshed reports whether the volume is to be refreshed periodically.
func (v *mountedVolume) isRefreshed() bool { return v.driver != "" || v.grows != "" }

// refreshed returns the pods with volumes that are to be refreshed periodically, by UID.
func (m *Manager) refreshed() []types.UID {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	var pods []types.UID
	for uid, s := range m.pods {
		if len(s.missing) > 0 || slices.ContainsFunc(s.volumes, func(v mountedVolume) bool { return v.isRefreshed() }) {
			pods = append(pods, uid)
		}
	}
	slices.Sort(pods)
	return pods
}

// forgetExpansions forgets the volumes with these keys that no pod uses any more, and what a pod
// has deferred.
func (m *Manager) forgetExpansions(uid types.UID, keys []string) {
	if m.Expansion == nil {
		return
	}
	m.Expansion.ForgetPod(uid)
	m.mutex.Lock()
	defer m.mutex.Unlock()
	used := map[string]bool{}
	for _, s := range m.pods {
		for i := range s.volumes {
			used[s.volumes[i].grows] = true
		}
	}
	for _, key := range keys {
		if !used[key] {
			m.Expansion.Forget(key)
		}
	}
}

// Refresh updates the content of the pod's volumes from their API objects, expands those that
// have grown, and mounts those of ephemeral containers that [Manager.Mount] could not. A volume
// that fails keeps its content and is in the error, as for Mount. Refresh does nothing for a pod
// that is not mounted.
func (m *Manager) Refresh(ctx context.Context, pod *corev1.Pod) error {
	if err := m.layout.check(pod); err != nil {
		return err
	}
	state, done := m.hold(pod.UID)
	defer done()
	missing := state.missing.Intersection(usedByEphemeral(pod))
	var failed []error
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		known := m.remembered(state, volume.Name)
		refreshed := known != nil && (showsObjects(volume) || known.isRefreshed())
		if !refreshed && !missing.Has(volume.Name) {
			continue
		}
		mounted, err := m.mount(ctx, state, pod, volume)
		if err != nil {
			failed = append(failed, &Error{Volume: volume.Name, Err: err})
		} else if missing.Has(volume.Name) {
			missing.Delete(volume.Name)
			m.remember(state, append(slices.Clone(state.volumes), mounted), missing)
		}
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	state.missing = missing
	return errors.Join(failed...)
}
