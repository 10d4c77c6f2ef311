package core

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"svc.dev/svc/apis/podspec"
)

// nodeLost is status.reason of a pod on a node that no longer reports.
const nodeLost = "NodeLost"

// podSummary holds the cells of a pod's row that depend on its containers:
// READY, STATUS and RESTARTS.
type podSummary struct {
	ready, containers int
	status            string
	restarts          restarts
}

// restarts is the number of restarts of containers and the time of the last.
type restarts struct {
	count int
	last  metav1.Time
}

func (r *restarts) add(c *corev1.ContainerStatus) {
	r.count += int(c.RestartCount)
	if t := c.LastTerminationState.Terminated; t != nil && r.last.Before(&t.FinishedAt) {
		r.last = t.FinishedAt
	}
}

// restartsAt returns the number of restarts and the age of the last one, for
// example "2 (5m ago)".
func (s podSummary) restartsAt(now time.Time) string {
	if s.restarts.count == 0 || s.restarts.last.IsZero() {
		return strconv.Itoa(s.restarts.count)
	}
	return fmt.Sprintf("%d (%s ago)", s.restarts.count, duration.HumanDuration(now.Sub(s.restarts.last.Time)))
}

// summarize follows kube-apiserver's printer. The status is the first of these
// that the pod has: its deletion, the state of its containers, the state of its
// init containers, its reason, its phase.
func summarize(p *corev1.Pod) podSummary {
	s := podSummary{containers: len(p.Spec.Containers), status: string(p.Status.Phase)}
	if p.Status.Reason != "" {
		s.status = p.Status.Reason
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			s.status = corev1.PodReasonSchedulingGated
		}
	}
	initializing := s.addInitContainers(p)
	if !initializing || podspec.IsConditionTrue(&p.Status, corev1.PodInitialized) {
		s.addContainers(p)
	}
	if p.DeletionTimestamp != nil {
		switch {
		case p.Status.Reason == nodeLost:
			s.status = "Unknown"
		case !podspec.IsTerminal(p.Status.Phase):
			s.status = "Terminating"
		}
	}
	return s
}

// addInitContainers adds the init containers and reports whether they have not
// completed yet. The restarts are those of all init containers until then,
// afterwards those of the sidecars only.
func (s *podSummary) addInitContainers(p *corev1.Pod) (initializing bool) {
	sidecars := map[string]bool{}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; podspec.IsSidecar(podspec.InitContainers, c) {
			sidecars[c.Name] = true
			s.containers++
		}
	}
	var all, ofSidecars restarts
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		all.add(c)
		if sidecars[c.Name] {
			ofSidecars.add(c)
		}
		if t := c.State.Terminated; t != nil && t.ExitCode == 0 {
			continue
		}
		if sidecars[c.Name] && c.Started != nil && *c.Started {
			if c.Ready {
				s.ready++
			}
			continue
		}
		s.status = initContainerReason(c, i, len(p.Spec.InitContainers))
		initializing = true
		break
	}
	s.restarts = all
	if !initializing || podspec.IsConditionTrue(&p.Status, corev1.PodInitialized) {
		s.restarts = ofSidecars
	}
	return initializing
}

func initContainerReason(c *corev1.ContainerStatus, index, total int) string {
	switch {
	case c.State.Terminated != nil:
		return "Init:" + terminationReason(c.State.Terminated)
	case c.State.Waiting != nil && c.State.Waiting.Reason != "" && c.State.Waiting.Reason != "PodInitializing":
		return "Init:" + c.State.Waiting.Reason
	}
	return fmt.Sprintf("Init:%d/%d", index, total)
}

func terminationReason(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}

// addContainers adds the containers. The status is the reason of the first
// container that is waiting or has terminated. Completed gives way: to Running if
// a container runs and the pod is ready, else to the reason of a failed
// container, else to NotReady if a container runs.
func (s *podSummary) addContainers(p *corev1.Pod) {
	running, failure := false, ""
	for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &p.Status.ContainerStatuses[i]
		s.restarts.add(c)
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			s.status = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			s.status = terminationReason(c.State.Terminated)
			if c.State.Terminated.ExitCode != 0 {
				failure = s.status
			}
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.status != "Completed" {
		return
	}
	switch {
	case running && podspec.IsConditionTrue(&p.Status, corev1.PodReady):
		s.status = "Running"
	case failure != "":
		s.status = failure
	case running:
		s.status = "NotReady"
	}
}
