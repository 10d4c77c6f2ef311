package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"svc.dev/svc/svclet/node"
)

// nodeProblems returns a line for each node that is not ready.
func nodeProblems(nodes []corev1.Node) []string {
	var problems []string
	for _, node := range nodes {
		problem := "node " + node.Name + " is not ready: its agent has not reported yet"
		for _, c := range node.Status.Conditions {
			if c.Type != corev1.NodeReady {
				continue
			}
			problem = because("node "+node.Name+" is not ready", c.Reason, c.Message)
			if c.Status == corev1.ConditionTrue {
				problem = ""
			}
		}
		if problem != "" {
			problems = append(problems, problem)
		}
	}
	return problems
}

// lackProblems returns a line for each thing that a ready node lacks. Of one that is not
// ready, other lines say what is wrong.
func lackProblems(nodes []corev1.Node) []string {
	what := map[corev1.NodeConditionType]string{
		node.ServiceProxyUnavailable: "has no service proxy",
		node.ServiceDNSUnavailable:   "has no DNS for services",
	}
	var problems []string
	for _, n := range nodes {
		if len(nodeProblems([]corev1.Node{n})) > 0 {
			continue
		}
		for _, c := range n.Status.Conditions {
			if lacks := what[c.Type]; lacks != "" && c.Status == corev1.ConditionTrue {
				problems = append(problems, because("node "+n.Name+" "+lacks, "", c.Message))
			}
		}
	}
	return problems
}

// podProblems returns a line for each pod that neither runs nor has completed nor is
// being deleted. It calls warnings, which returns the newest Warning event of each pod, for
// those whose status does not give the cause.
func podProblems(pods []corev1.Pod, warnings func() (map[types.UID]corev1.Event, error)) ([]string, error) {
	var problems []string
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded {
			continue
		}
		what := "pod " + pod.Namespace + "/" + pod.Name
		if pod.Status.Phase != corev1.PodRunning {
			what += " is " + string(pod.Status.Phase)
		} else if podReady(pod) {
			continue
		} else {
			what += " is not ready"
		}
		reason, message := whyNot(pod)
		if reason == "" || reason == "ContainersNotReady" || reason == "ContainersNotInitialized" {
			latest, err := warnings()
			if err != nil {
				return nil, err
			}
			if event, ok := latest[pod.UID]; ok && !lastSeen(event).Before(lastProgress(pod)) {
				reason, message = event.Reason, event.Message
			}
		}
		problems = append(problems, because(what, reason, message))
	}
	return problems, nil
}

// newest returns the newest event of each object, by the object's UID.
func newest(events []corev1.Event) map[types.UID]corev1.Event {
	all := map[types.UID]corev1.Event{}
	for _, event := range events {
		of := event.InvolvedObject.UID
		if known, ok := all[of]; !ok || lastSeen(known).Before(lastSeen(event)) {
			all[of] = event
		}
	}
	return all
}

// lastSeen returns when an event has happened last.
func lastSeen(event corev1.Event) time.Time {
	switch {
	case event.Series != nil:
		return event.Series.LastObservedTime.Time
	case event.LastTimestamp.IsZero():
		return event.EventTime.Time
	}
	return event.LastTimestamp.Time
}

// lastProgress returns when a pod was scheduled or, if that is later, when its last container
// was started. Earlier events are about what has succeeded since then.
func lastProgress(pod *corev1.Pod) time.Time {
	var last time.Time
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			last = c.LastTransitionTime.Time
		}
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if running := c.State.Running; running != nil && running.StartedAt.After(last) {
			last = running.StartedAt.Time
		}
	}
	return last
}

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// whyNot returns the reason closest to the cause: the container's, the pod's, or that
// of a condition.
func whyNot(pod *corev1.Pod) (reason, message string) {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, c := range statuses {
			// These say no more than the phase.
			if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
				return w.Reason, w.Message
			}
		}
	}
	if pod.Status.Reason != "" || pod.Status.Message != "" {
		return pod.Status.Reason, pod.Status.Message
	}
	for _, c := range pod.Status.Conditions {
		if c.Status == corev1.ConditionFalse && (c.Reason != "" || c.Message != "") {
			return c.Reason, c.Message
		}
	}
	return "", ""
}

// serviceProblems returns a line for each API service that is not available.
func serviceProblems(services []apiregistrationv1.APIService) []string {
	var problems []string
	for _, service := range services {
		for _, c := range service.Status.Conditions {
			if c.Type == apiregistrationv1.Available && c.Status != apiregistrationv1.ConditionTrue {
				problems = append(problems, because("apiservice "+service.Name+" is not available", c.Reason, c.Message))
			}
		}
	}
	return problems
}

// because adds a reason to a problem, on one line.
func because(what, reason, message string) string {
	for _, why := range []string{reason, message} {
		if why = strings.Join(strings.Fields(why), " "); why != "" {
			what = fmt.Sprintf("%s: %s", what, why)
		}
	}
	return what
}
