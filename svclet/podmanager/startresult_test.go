package podmanager

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestAPodHasStartedIfItRunsOrHasEnded(t *testing.T) {
	waiting := func(reason, message string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
	}
	running := []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	for _, test := range []struct {
		name          string
		status        corev1.PodStatus
		wait, failure string
	}{
		{name: "nothing is known", wait: "not started"},
		{name: "it runs", status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: running}},
		{name: "some of it runs", status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: append(waiting("ContainerCreating", ""), running...)},
			wait: "container app: ContainerCreating"},
		{name: "its image is not there", status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: waiting("ErrImagePull", "no such image")},
			wait: "container app: ErrImagePull: no such image"},
		{name: "it keeps ending", status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: waiting("CrashLoopBackOff", "back-off 10s")},
			failure: "container app keeps ending"},
		{name: "it has succeeded", status: corev1.PodStatus{Phase: corev1.PodSucceeded}},
		{name: "it has failed", status: corev1.PodStatus{Phase: corev1.PodFailed}, failure: "a container has ended with an error"},
		{name: "it was refused", status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu", Message: "Node didn't have enough resource"},
			failure: "OutOfcpu: Node didn't have enough resource"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if wait, failure := startResult(&test.status); wait != test.wait || failure != test.failure {
				t.Errorf("waits for %q and has failure %q, want %q and %q", wait, failure, test.wait, test.failure)
			}
		})
	}
}
