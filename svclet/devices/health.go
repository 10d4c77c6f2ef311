package devices

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// isHealthy reports whether a device is healthy. One that no plugin lists is, as far as is known:
// the agent may have restarted, and the plugin not have registered yet.
func isHealthy(devices map[string]device, id string) bool {
	d, listed := devices[id]
	return !listed || d.healthy
}

// Health returns the health of the devices of a container, as the pod's status shows it
// (KEP-4680).
func (m *Manager) Health(uid types.UID, container string) []corev1.ResourceStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := m.allocated[uid][container]
	var all []corev1.ResourceStatus
	for _, name := range slices.Sorted(maps.Keys(held)) {
		s := corev1.ResourceStatus{Name: corev1.ResourceName(name)}
		var devices map[string]device
		if of := m.resources[name]; of != nil {
			devices = of.devices
		}
		for _, id := range slices.Sorted(slices.Values(held[name].IDs)) {
			health := corev1.ResourceHealthStatusHealthy
			if !isHealthy(devices, id) {
				health = corev1.ResourceHealthStatusUnhealthy
			}
			s.Resources = append(s.Resources, corev1.ResourceHealth{ResourceID: corev1.ResourceID(id), Health: health})
		}
		all = append(all, s)
	}
	return all
}

// usersOf returns the pods with certain devices of a resource. The caller holds mu.
func (m *Manager) usersOf(resource string, has func(id string) bool) []types.UID {
	var all []types.UID
	for uid, containers := range m.allocated {
		for _, resources := range containers {
			if a := resources[resource]; a != nil && slices.ContainsFunc(a.IDs, has) {
				all = append(all, uid)
				break
			}
		}
	}
	return all
}

func (m *Manager) notify(pods []types.UID) {
	if len(pods) > 0 && m.o.HealthChanged != nil {
		m.o.HealthChanged(pods)
	}
}
