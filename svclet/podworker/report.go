package podworker

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/pod"
)

// report passes an output of the machine on: events, probes, the status, and the
// end of the pod.
func (w *Worker) report(p *corev1.Pod, observed pod.Observed, out pod.Output) {
	for _, event := range out.Events {
		w.record(p, event)
	}
	if out.Ended {
		w.o.Probes.Remove(p.UID)
	} else {
		w.o.Probes.Sync(p.UID, p, w.o.Executor.PodIP(p, observed), out.Probes)
	}
	if out.Ended && !w.endReported {
		w.endReported = true
		w.o.Listener.PodEnded()
	}
	if !w.start.Orphaned {
		w.o.Statuses.Set(p, out.Status)
		w.measureStart(p, &out.Status)
	}
	if !out.Released {
		return
	}
	if err := w.o.Logs.RemovePod(p.UID); err != nil {
		klog.FromContext(w.ctx).Error(err, "Failed to remove pod logs", "pod", klog.KObj(p), "podUID", p.UID)
	}
	w.o.Statuses.Finish(p)
}

// showHealth adds the health of the devices of containers to a status (KEP-4680). What was shown
// last of devices stays when they are released, since it may be why the pod has ended.
func (w *Worker) showHealth(p *corev1.Pod, s *corev1.PodStatus) {
	if w.o.Health == nil {
		return
	}
	for i := range s.ContainerStatuses {
		name := s.ContainerStatuses[i].Name
		if health := w.o.Health.Of(p, name); health != nil {
			w.health[name] = health
		}
	}
	if len(w.health) == 0 {
		return
	}
	s.ContainerStatuses = slices.Clone(s.ContainerStatuses) // they are the machine's
	for i := range s.ContainerStatuses {
		c := &s.ContainerStatuses[i]
		if health := w.health[c.Name]; health != nil {
			c.AllocatedResourcesStatus = health
		}
	}
}

// record records an event about the pod. An orphaned pod of which only files or
// cgroups are left has no name that an event could refer to: its events are logged.
func (w *Worker) record(p *corev1.Pod, event pod.Event) {
	if p.Name != "" {
		w.o.Events.Event(p, event)
		return
	}
	klog.FromContext(w.ctx).Info("Failed to clean up orphaned pod, will retry", "podUID", p.UID, "err", event.Message)
}

// setStatus publishes the status, and the end of the pod.
func (w *Worker) setStatus(out pod.Output) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status, w.released = out.Status, out.Released
	if out.Ended && !w.HasEnded() {
		close(w.ended)
		w.endRefreshes()
	}
}

// measureStart records how long the pod took until all its containers ran for the
// first time. Adopted pods, which ran before, are not measured.
func (w *Worker) measureStart(p *corev1.Pod, status *corev1.PodStatus) {
	if w.startMeasured || status.Phase != corev1.PodRunning {
		return
	}
	for i := range status.ContainerStatuses {
		if status.ContainerStatuses[i].State.Running == nil {
			return
		}
	}
	w.startMeasured = true
	if w.start.Adopted {
		return
	}
	now := w.o.Clock.Now()
	known := now.Sub(w.start.Known)
	existed := known
	if !p.CreationTimestamp.IsZero() {
		existed = now.Sub(p.CreationTimestamp.Time)
	}
	w.mu.Lock()
	pulling := w.pulling
	w.mu.Unlock()
	w.o.Metrics.PodRunning(known, existed, pulling)
}
