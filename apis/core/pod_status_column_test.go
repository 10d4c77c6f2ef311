package core

import (
	"testing"
	"time"
)

func TestStatusColumn(t *testing.T) {
	for _, test := range []struct{ rule, change, want string }{
		{"the status is the phase", `status: {phase: Pending}`, "0/1 Pending 0"},
		{"the reason comes before the phase", `status: {phase: Failed, reason: Evicted}`, "0/1 Evicted 0"},
		{"a pod with scheduling gates is SchedulingGated", `status: {phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: SchedulingGated}]}`, "0/1 SchedulingGated 0"},
		{"the reason of a waiting container comes before the phase", `status: {phase: Running, containerStatuses: [{name: web, restartCount: 3, state: {waiting: {reason: CrashLoopBackOff}}}]}`, "0/1 CrashLoopBackOff 3"},
		{"a terminated container gives its reason", `status: {phase: Failed, containerStatuses: [{name: web, state: {terminated: {exitCode: 137, reason: OOMKilled}}}]}`, "0/1 OOMKilled 0"},
		{"a terminated container without a reason gives its signal", `status: {phase: Failed, containerStatuses: [{name: web, state: {terminated: {exitCode: 137, signal: 9}}}]}`, "0/1 Signal:9 0"},
		{"a terminated container without a signal gives its exit code", `status: {phase: Failed, containerStatuses: [{name: web, state: {terminated: {exitCode: 2}}}]}`, "0/1 ExitCode:2 0"},
		{"all containers completed", `status: {phase: Succeeded, containerStatuses: [{name: web, state: {terminated: {exitCode: 0, reason: Completed}}}]}`, "0/1 Completed 0"},
		{"some containers completed, the others are ready", `{spec: {containers: [{name: a, image: x}, {name: b, image: x}]}, status: {phase: Running, conditions: [{type: Ready, status: "True"}], containerStatuses: [{name: a, state: {terminated: {exitCode: 0, reason: Completed}}}, {name: b, ready: true, state: {running: {}}}]}}`, "1/2 Running 0"},
		{"some containers completed, the pod is not ready", `{spec: {containers: [{name: a, image: x}, {name: b, image: x}]}, status: {phase: Running, containerStatuses: [{name: a, state: {terminated: {exitCode: 0, reason: Completed}}}, {name: b, ready: true, state: {running: {}}}]}}`, "1/2 NotReady 0"},
		{"one init container of two has completed", `{spec: {initContainers: [{name: i, image: x}, {name: j, image: x}]}, status: {phase: Pending, initContainerStatuses: [{name: i, state: {terminated: {exitCode: 0}}}, {name: j, restartCount: 1, state: {running: {}}}]}}`, "0/1 Init:1/2 1"},
		{"an init container failed", `{spec: {initContainers: [{name: i, image: x}]}, status: {phase: Pending, initContainerStatuses: [{name: i, restartCount: 4, state: {terminated: {exitCode: 1, reason: Error}}}]}}`, "0/1 Init:Error 4"},
		{"an init container waits", `{spec: {initContainers: [{name: i, image: x}]}, status: {phase: Pending, initContainerStatuses: [{name: i, state: {waiting: {reason: ErrImagePull}}}]}}`, "0/1 Init:ErrImagePull 0"},
		{"a sidecar counts as a container", `{spec: {initContainers: [{name: i, image: x}, {name: s, image: x, restartPolicy: Always}]}, status: {phase: Running, initContainerStatuses: [{name: i, restartCount: 7, state: {terminated: {exitCode: 0}}}, {name: s, ready: true, started: true, restartCount: 1, state: {running: {}}}], containerStatuses: [{name: web, ready: true, restartCount: 2, state: {running: {}}}]}}`, "2/2 Running 3"},
		{"a pod that is being deleted is Terminating", `{metadata: {deletionTimestamp: "2024-01-01T00:00:00Z"}, status: {phase: Running}}`, "0/1 Terminating 0"},
		{"a terminated pod that is being deleted keeps its phase", `{metadata: {deletionTimestamp: "2024-01-01T00:00:00Z"}, status: {phase: Succeeded}}`, "0/1 Succeeded 0"},
		{"a pod that is being deleted on a lost node is Unknown", `{metadata: {deletionTimestamp: "2024-01-01T00:00:00Z"}, status: {phase: Running, reason: NodeLost}}`, "0/1 Unknown 0"},
		{"the last restart has an age", `status: {phase: Running, containerStatuses: [{name: web, ready: true, restartCount: 2, state: {running: {}}, lastState: {terminated: {exitCode: 1, finishedAt: "2024-01-01T00:00:00Z"}}}]}`, "1/1 Running 2 (5m ago)"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			p := podOf(t, test.change)
			s := summarize(p)
			ready := podColumns[1].Value(p).(string)
			got := ready + " " + s.status + " " + s.restartsAt(time.Date(2024, 1, 1, 0, 5, 0, 0, time.UTC))
			if got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}
