package core

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

var podColumns = append([]resource.Column[*corev1.Pod]{
	resource.Name[*corev1.Pod](),
	{Name: "Ready", Description: "The aggregate readiness state of this pod for accepting traffic.",
		Value: func(p *corev1.Pod) any { s := summarize(p); return fmt.Sprintf("%d/%d", s.ready, s.containers) }},
	{Name: "Status", Description: "The aggregate status of the containers in this pod.",
		Value: func(p *corev1.Pod) any { return summarize(p).reason }},
	{Name: "Restarts", Description: "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.",
		Value: func(p *corev1.Pod) any { return summarize(p).restartsAt(time.Now()) }},
	resource.Age[*corev1.Pod](),
}, resource.Wide(
	resource.Column[*corev1.Pod]{Name: "IP", Description: corev1.PodStatus{}.SwaggerDoc()["podIP"],
		Value: func(p *corev1.Pod) any { return orNone(p.Status.PodIP) }},
	resource.Column[*corev1.Pod]{Name: "Node", Description: corev1.PodSpec{}.SwaggerDoc()["nodeName"],
		Value: func(p *corev1.Pod) any { return orNone(p.Spec.NodeName) }},
	resource.Column[*corev1.Pod]{Name: "Nominated Node", Description: corev1.PodStatus{}.SwaggerDoc()["nominatedNodeName"],
		Value: func(p *corev1.Pod) any { return orNone(p.Status.NominatedNodeName) }},
	resource.Column[*corev1.Pod]{Name: "Readiness Gates", Description: corev1.PodSpec{}.SwaggerDoc()["readinessGates"],
		Value: func(p *corev1.Pod) any { return readinessGates(p) }},
)...)

func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}

func readinessGates(p *corev1.Pod) string {
	if len(p.Spec.ReadinessGates) == 0 {
		return "<none>"
	}
	open := 0
	for _, gate := range p.Spec.ReadinessGates {
		if podConditionIs(p, gate.ConditionType, corev1.ConditionTrue) {
			open++
		}
	}
	return fmt.Sprintf("%d/%d", open, len(p.Spec.ReadinessGates))
}

// nodeLost is the reason of pods whose node no longer reports.
const nodeLost = "NodeLost"

// podSummary is what kubectl get shows of a pod's containers.
type podSummary struct {
	ready, containers int
	reason            string
	restarts          restarts
}

// restarts counts the restarts of containers and knows the last one.
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

// restartsAt is the number of restarts and, "(5m ago)", the age of the last.
func (s podSummary) restartsAt(now time.Time) string {
	if s.restarts.count == 0 || s.restarts.last.IsZero() {
		return strconv.Itoa(s.restarts.count)
	}
	return fmt.Sprintf("%d (%s ago)", s.restarts.count, duration.HumanDuration(now.Sub(s.restarts.last.Time)))
}

// summarize follows kube-apiserver's printer: the most specific thing that can
// be said of the pod wins, from its phase over its init containers and its
// containers to its deletion.
func summarize(p *corev1.Pod) podSummary {
	s := podSummary{containers: len(p.Spec.Containers), reason: string(p.Status.Phase)}
	if p.Status.Reason != "" {
		s.reason = p.Status.Reason
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			s.reason = corev1.PodReasonSchedulingGated
		}
	}
	initializing := s.addInitContainers(p)
	if !initializing || podConditionIs(p, corev1.PodInitialized, corev1.ConditionTrue) {
		s.addContainers(p)
	}
	if p.DeletionTimestamp != nil {
		switch {
		case p.Status.Reason == nodeLost:
			s.reason = "Unknown"
		case !podspec.IsTerminal(p.Status.Phase):
			s.reason = "Terminating"
		}
	}
	return s
}

// addInitContainers reports whether initialization goes on or has failed. The
// restarts are those of all init containers while it does, afterwards those of
// the sidecars only.
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
		s.reason = initReason(c, i, len(p.Spec.InitContainers))
		initializing = true
		break
	}
	s.restarts = all
	if !initializing || podConditionIs(p, corev1.PodInitialized, corev1.ConditionTrue) {
		s.restarts = ofSidecars
	}
	return initializing
}

func initReason(c *corev1.ContainerStatus, index, total int) string {
	switch {
	case c.State.Terminated != nil:
		return "Init:" + endReason(c.State.Terminated)
	case c.State.Waiting != nil && c.State.Waiting.Reason != "" && c.State.Waiting.Reason != "PodInitializing":
		return "Init:" + c.State.Waiting.Reason
	}
	return fmt.Sprintf("Init:%d/%d", index, total)
}

func endReason(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}

// addContainers lets the first container that waits or has ended speak for
// the pod. That it ended well says nothing while others run or have failed.
func (s *podSummary) addContainers(p *corev1.Pod) {
	running, failure := false, ""
	for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &p.Status.ContainerStatuses[i]
		s.restarts.add(c)
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			s.reason = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			s.reason = endReason(c.State.Terminated)
			if c.State.Terminated.ExitCode != 0 {
				failure = s.reason
			}
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.reason != "Completed" {
		return
	}
	switch {
	case running && podConditionIs(p, corev1.PodReady, corev1.ConditionTrue):
		s.reason = "Running"
	case failure != "":
		s.reason = failure
	case running:
		s.reason = "NotReady"
	}
}
