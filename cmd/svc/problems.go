package main

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
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
// being deleted.
func podProblems(pods []corev1.Pod) []string {
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
		problems = append(problems, because(what, reason, message))
	}
	return problems
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
