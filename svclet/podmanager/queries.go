package podmanager

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/svclet/allocation"
	"svc.dev/svc/svclet/container"
	"svc.dev/svc/svclet/executor"
	"svc.dev/svc/svclet/logs"
	"svc.dev/svc/svclet/oom"
	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/podworker"
	"svc.dev/svc/svclet/server/metrics"
	"svc.dev/svc/svclet/source"
)

// List returns the pods that sources have or had until they end, with the statuses
// that the node gives them. It implements server.Pods.
func (t *Table) List() []*corev1.Pod {
	all := []*corev1.Pod{}
	for _, w := range t.all() {
		if !w.IsOrphaned() {
			all = append(all, w.PodWithStatus())
		}
	}
	return all
}

// Get returns a pod by its name, with the status that the node gives it: the one that a source
// has, before one of the same name that is gone from its source and still ends, as after
// `kubectl delete --force` of a pod of a StatefulSet. It implements server.Pods.
func (t *Table) Get(namespace, name string) (*corev1.Pod, bool) {
	var removed *podworker.Worker
	for _, w := range t.all() {
		if p := w.Pod(); p.Namespace != namespace || p.Name != name || w.IsOrphaned() {
			continue
		}
		if !w.IsRemoved() {
			return w.PodWithStatus(), true
		}
		removed = w
	}
	if removed == nil {
		return nil, false
	}
	return removed.PodWithStatus(), true
}

// Find returns the pod of a UID as its source has it, nil if there is none.
func (t *Table) Find(uid types.UID) *corev1.Pod {
	if w := t.get(uid); w != nil {
		return w.Pod()
	}
	return nil
}

// Active returns the pods that use resources of the node, or will.
func (t *Table) Active() []*corev1.Pod {
	var active []*corev1.Pod
	for _, w := range t.all() {
		if w.IsActive() {
			active = append(active, w.Pod())
		}
	}
	return active
}

// holders returns the pods that have what is allocated to their containers, also those that no source
// has.
func (t *Table) holders() []*corev1.Pod {
	var holders []*corev1.Pod
	for _, w := range t.all() {
		if w.MayRun() {
			holders = append(holders, w.Pod())
		}
	}
	return holders
}

// present returns the active pods that a source has. For one that was deleted without its grace
// period, the scheduler has given its place to others already, while its containers still stop: as
// kubelet, the node does not refuse those.
func (t *Table) present() []*corev1.Pod {
	var present []*corev1.Pod
	for _, w := range t.all() {
		if w.IsActive() && !w.IsRemoved() {
			present = append(present, w.Pod())
		}
	}
	return present
}

// Evict ends a pod. It does nothing if the pod is not known, or has been evicted
// before. It implements eviction.Pods.
func (t *Table) Evict(uid types.UID, e pod.Eviction) {
	if w := t.get(uid); w != nil {
		w.Evict(e)
	}
}

// Released reports whether the node has got back everything that a pod used. It
// implements eviction.Pods.
func (t *Table) Released(uid types.UID) bool {
	w := t.get(uid)
	return w == nil || w.IsReleased()
}

// Terminate ends a pod, because the node shuts down. It implements shutdown.Pods.
func (t *Table) Terminate(uid types.UID, e pod.Eviction) {
	if w := t.get(uid); w != nil {
		w.Terminate(e)
	}
}

// RunningContainers returns the logs of the containers that run, by the options of
// their configurations.
func (t *Table) RunningContainers(o container.Options) []logs.Container {
	var all []logs.Container
	for _, w := range t.all() {
		p := w.Pod()
		for _, c := range w.Observed().Containers {
			if c.State == pod.Running {
				all = append(all, executor.Log(o, p, c.Name, c.ID, c.Attempt))
			}
		}
	}
	return all
}

// Running returns the containers that run.
func (t *Table) Running() []allocation.Container {
	var all []allocation.Container
	for _, w := range t.all() {
		uid := w.Pod().UID
		for _, c := range w.Observed().Containers {
			if c.State == pod.Running {
				all = append(all, allocation.Container{Pod: uid, Name: c.Name, ID: c.ID})
			}
		}
	}
	return all
}

// Containers returns the containers that the runtime has, whether they run or not.
func (t *Table) Containers() []oom.Container {
	var all []oom.Container
	for _, w := range t.all() {
		p := w.Pod()
		for _, c := range w.Observed().Containers {
			all = append(all, oom.Container{Pod: p.UID, Namespace: p.Namespace, PodName: p.Name, Name: c.Name, ID: c.ID})
		}
	}
	return all
}

// Count counts pods and containers, for metrics. If mirrored is true, the API has a
// mirror pod of each static pod.
func (t *Table) Count(mirrored bool) metrics.Counts {
	c := metrics.Counts{Containers: map[string]int{}}
	for _, w := range t.all() {
		observed := w.Observed()
		for i := range observed.Containers {
			c.Containers[string(observed.Containers[i].State)]++
		}
		for _, sandbox := range observed.Sandboxes {
			if sandbox.Ready {
				c.RunningPods++
				break
			}
		}
		if w.IsRemoved() {
			continue
		}
		static, active := source.IsStatic(w.Pod()), !w.HasEnded()
		c.Desired += one(!static)
		c.DesiredStatic += one(static)
		c.Active += one(!static && active)
		c.ActiveStatic += one(static && active)
		c.Mirrors += one(static && mirrored)
	}
	return c
}

func one(counts bool) int {
	if counts {
		return 1
	}
	return 0
}

// Translate returns the UID of the static pod whose mirror pod has this UID, and the
// UID itself if there is none. It implements server.Pods.
func (m *Manager) Translate(uid types.UID) types.UID {
	for _, w := range m.all() {
		if p := w.Pod(); source.IsStatic(p) {
			if mirror, found := m.o.Sources.Mirror(p); found && mirror.UID == uid {
				return p.UID
			}
		}
	}
	return uid
}
