package agent

import (
	"sync"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/svclet/runtime/runtimetest"
	"svc.dev/svc/svclet/source"
)

func TestAnAgentThatEndsDuringAPostStartHookLeavesTheContainerAlone(t *testing.T) {
	m := newMachine(t, runtimetest.Options{})
	m.runtime.Rule("ExecSync", runtimetest.Rule{Hang: true})
	m.start()
	m.write("a", ", lifecycle: {postStart: {exec: {command: [prepare]}}}")
	m.Eventually(m.calls("ExecSync")).Should(gomega.Equal(1))
	m.stop()
	m.Expect(m.runtime.Calls("StopContainer")).To(gomega.BeZero())
}

func TestAContainerWhosePostStartHookFailsRunsItsPreStopHook(t *testing.T) {
	var mu sync.Mutex
	var ran []string
	m := newMachine(t, runtimetest.Options{Exec: func(_ *runtimeapi.ContainerConfig, command []string) runtimetest.ExecResult {
		mu.Lock()
		defer mu.Unlock()
		ran = append(ran, command[0])
		if command[0] == "prepare" {
			return runtimetest.ExecResult{Code: 1}
		}
		return runtimetest.ExecResult{}
	}})
	m.start()
	m.write("a", ", lifecycle: {postStart: {exec: {command: [prepare]}}, preStop: {exec: {command: [finish]}}}")
	m.Eventually(m.calls("StopContainer")).Should(gomega.BeNumerically(">=", 1))
	mu.Lock()
	defer mu.Unlock()
	m.Expect(ran[:min(2, len(ran))]).To(gomega.Equal([]string{"prepare", "finish"}))
}

func TestAPodThatOnlyTheRuntimeKnowsEndsWithItsPreStopHook(t *testing.T) {
	var mu sync.Mutex
	ran := 0
	m := newMachine(t, runtimetest.Options{Exec: func(*runtimeapi.ContainerConfig, []string) runtimetest.ExecResult {
		mu.Lock()
		defer mu.Unlock()
		ran++
		return runtimetest.ExecResult{}
	}})
	m.start()
	m.write("a", ", lifecycle: {preStop: {exec: {command: [finish]}}}")
	m.Eventually(m.isReady("a")).Should(gomega.BeTrue())
	m.stop()
	m.erase("a")
	m.start()
	m.Eventually(m.runtime.Pods).Should(gomega.BeEmpty())
	mu.Lock()
	defer mu.Unlock()
	m.Expect(ran).To(gomega.Equal(1))
}

// noted are objects that record which pods have been registered.
type noted struct {
	objects
	mu   sync.Mutex
	pods []*corev1.Pod
}

func (n *noted) Register(p *corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods = append(n.pods, p)
}

func TestTheObjectsOfAnEphemeralContainerAreWatched(t *testing.T) {
	m := newMachine(t, runtimetest.Options{})
	registered := &noted{}
	m.overrides.objects = func(real objects) objects {
		registered.objects = real
		return registered
	}
	m.start()
	m.write("a", "")
	m.Eventually(m.isReady("a")).Should(gomega.BeTrue())
	debugged := m.agent.pods.Find(m.pod("a").UID).DeepCopy()
	debugged.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", Image: "app:1"},
	}}
	m.agent.pods.updates <- source.Update{Source: source.File, Set: []*corev1.Pod{debugged}}
	m.Eventually(func() string { return m.runtime.Container(debugged.UID, "debugger") }).ShouldNot(gomega.BeEmpty())
	registered.mu.Lock()
	defer registered.mu.Unlock()
	m.Expect(registered.pods[len(registered.pods)-1]).To(gomega.BeIdenticalTo(debugged))
}
