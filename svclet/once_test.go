package svclet

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestAPodHasStartedWhenItRunsOrHasEnded(t *testing.T) {
	waiting := func(reason, message string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
	}
	running := []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	for _, test := range []struct {
		name          string
		status        corev1.PodStatus
		wait, problem string
	}{
		{name: "nothing is known", wait: "not started"},
		{name: "it runs", status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: running}},
		{name: "some of it runs", status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: append(waiting("ContainerCreating", ""), running...)},
			wait: "container app: ContainerCreating"},
		{name: "its image is not there", status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: waiting("ErrImagePull", "no such image")},
			wait: "container app: ErrImagePull: no such image"},
		{name: "it keeps ending", status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: waiting("CrashLoopBackOff", "back-off 10s")},
			problem: "container app keeps ending"},
		{name: "it has succeeded", status: corev1.PodStatus{Phase: corev1.PodSucceeded}},
		{name: "it has failed", status: corev1.PodStatus{Phase: corev1.PodFailed}, problem: "a container has ended with an error"},
		{name: "it was refused", status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu", Message: "Node didn't have enough resource"},
			problem: "OutOfcpu: Node didn't have enough resource"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if wait, problem := started(&test.status); wait != test.wait || problem != test.problem {
				t.Errorf("waits for %q and has problem %q, want %q and %q", wait, problem, test.wait, test.problem)
			}
		})
	}
}
