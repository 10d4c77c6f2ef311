package agent

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/runtime/runtimetest"
)

func TestAStaticPodThatIsRemovedAndWrittenAgainRunsAgain(t *testing.T) {
	m := newMachine(t, runtimetest.Options{})
	m.start()
	m.write("a", "")
	m.Eventually(m.isReady("a")).Should(gomega.BeTrue())
	uid := m.pod("a").UID
	first := m.runtime.Container(uid, "app")
	release := m.held("StopContainer")
	m.erase("a")
	m.Eventually(m.calls("StopContainer")).Should(gomega.Equal(1))
	m.write("a", "") // while the first pod terminates
	m.write("b", "")
	m.Eventually(m.isReady("b")).Should(gomega.BeTrue()) // both files have been read
	release()
	m.Eventually(func() string { return m.runtime.Container(uid, "app") }).ShouldNot(gomega.BeElementOf("", first))
	m.Eventually(m.isReady("a")).Should(gomega.BeTrue())
	m.Expect(m.pod("a").UID).To(gomega.Equal(uid))
	m.Expect(m.pod("a").Status.ContainerStatuses[0].RestartCount).To(gomega.BeZero())
}

func TestAStaticPodWaitsForTheOneThatAnEarlierAgentRanUnderItsName(t *testing.T) {
	m := newMachine(t, runtimetest.Options{})
	m.start()
	m.write("a", "")
	m.Eventually(m.isReady("a")).Should(gomega.BeTrue())
	old := m.pod("a").UID
	m.stop()
	m.write("a", ", args: [new]")
	release := m.held("StopContainer")
	m.start()
	m.Eventually(m.calls("StopContainer")).Should(gomega.Equal(1))
	m.write("b", "")
	m.Eventually(m.isReady("b")).Should(gomega.BeTrue())
	b := m.pod("b").UID
	m.Expect(m.runtime.Pods()).To(gomega.ConsistOf(old, b))
	release()
	m.Eventually(m.isReady("a")).Should(gomega.BeTrue())
	m.Expect(m.runtime.Pods()).To(gomega.ConsistOf(m.pod("a").UID, b))
	m.Expect(m.pod("a").UID).NotTo(gomega.Equal(old))
}

func TestRunningPodsAreAdmittedFirstAfterARestart(t *testing.T) {
	m := newMachine(t, runtimetest.Options{})
	m.adjust = func(_ *config.Flags, c *config.Configuration) { c.MaxPods = 1 }
	m.start()
	m.write("b", "")
	m.Eventually(m.isReady("b")).Should(gomega.BeTrue())
	m.stop()
	m.write("a", "") // is read first
	m.start()
	m.Eventually(func() corev1.PodPhase { return m.pod("a").Status.Phase }).Should(gomega.Equal(corev1.PodFailed))
	m.Eventually(m.isReady("b")).Should(gomega.BeTrue())
	m.Expect(m.runtime.Pods()).To(gomega.ConsistOf(m.pod("b").UID))
}

func TestACriticalPodStartsWhenThePreemptedPodsHaveEnded(t *testing.T) {
	m := newMachine(t, runtimetest.Options{})
	m.adjust = func(_ *config.Flags, c *config.Configuration) { c.MaxPods = 1 }
	m.start()
	m.write("a", "}\n  priority: 1 #")
	m.Eventually(m.isReady("a")).Should(gomega.BeTrue())
	victim := m.pod("a").UID
	release := m.held("StopContainer")
	m.write("b", "}\n  priority: 2 #")
	m.Eventually(m.calls("StopContainer")).Should(gomega.Equal(1))
	m.write("c", "}\n  priority: 1 #") // takes no place that another one waits for
	m.Eventually(func() corev1.PodPhase { return m.pod("c").Status.Phase }).Should(gomega.Equal(corev1.PodFailed))
	m.Expect(m.runtime.Pods()).To(gomega.ConsistOf(victim))
	release()
	m.Eventually(m.isReady("b")).Should(gomega.BeTrue())
	m.Expect(m.pod("a").Status).To(gomega.And(
		gomega.HaveField("Phase", corev1.PodFailed), gomega.HaveField("Reason", "Preempting"),
		gomega.HaveField("Conditions", gomega.ContainElement(gomega.And(
			gomega.HaveField("Type", corev1.DisruptionTarget), gomega.HaveField("Message", "Pod was preempted by Kubelet to accommodate a critical pod."))))))
}

// classes are cgroups that record how many pods are active.
type classes struct {
	cgroups
	active atomic.Int32
}

func (c *classes) UpdateClasses(active []*corev1.Pod) error {
	c.active.Store(int32(len(active)))
	return c.cgroups.UpdateClasses(active)
}

func TestAPodThatHasEndedHasNoCPUShares(t *testing.T) {
	m := newMachine(t, runtimetest.Options{})
	var divided classes
	m.overrides.cgroups = func(real cgroups) cgroups {
		divided.cgroups = real
		return &divided
	}
	m.start()
	m.write("a", "}\n  restartPolicy: Never #")
	m.Eventually(m.isReady("a")).Should(gomega.BeTrue())
	m.Eventually(divided.active.Load).Should(gomega.BeEquivalentTo(1))
	m.runtime.End(m.runtime.Container(m.pod("a").UID, "app"), runtimetest.End{})
	m.Eventually(divided.active.Load).Should(gomega.BeZero())
}

func TestASandboxThatAppearsAfterItsPodWasReleasedIsRemoved(t *testing.T) {
	for name, o := range map[string]runtimetest.Options{"events": {Events: true}, "containerd's events": {Name: "containerd"}, "relist": {}} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, o)
			gate := make(chan struct{})
			come := sync.OnceFunc(func() { close(gate) })
			m.Cleanup(come)
			m.runtime.Rule("RunPodSandbox", runtimetest.Rule{Gate: gate, Anyway: true, Times: 1})
			m.start()
			m.write("a", "")
			m.Eventually(m.calls("RunPodSandbox")).Should(gomega.Equal(1))
			m.erase("a")
			m.Eventually(func() []*corev1.Pod { return m.agent.pods.List() }).Should(gomega.BeEmpty())
			m.Expect(m.runtime.Pods()).To(gomega.BeEmpty())
			come()
			m.Eventually(m.calls("RemovePodSandbox")).Should(gomega.BeNumerically(">=", 1))
			m.Eventually(m.runtime.Pods).Should(gomega.BeEmpty())
			m.Eventually(func() int { return m.agent.pods.Count(false).RunningPods }).Should(gomega.BeZero())
		})
	}
}

func TestNoPodIsChangedBeforeTheRuntimeHasListedItsPods(t *testing.T) {
	c := newCluster(t)
	c.start()
	c.create("a")
	c.Eventually(c.runs("a")).Should(gomega.BeTrue())
	status, sandbox := c.api.Pod("default", "a").Status, c.runtime.Sandbox("uid-a")
	c.stop()
	release := c.held("ListPodSandbox")
	lists := c.runtime.Calls("ListPodSandbox")
	c.start()
	// Its requests time out, and are made again.
	c.Eventually(c.calls("ListPodSandbox")).Should(gomega.BeNumerically(">=", lists+2))
	c.Expect(c.agent.node.Known()).To(gomega.BeFalse())
	c.Expect(c.api.Pod("default", "a").Status).To(gomega.Equal(status))
	release()
	c.Eventually(c.agent.node.Known).Should(gomega.BeTrue())
	c.create("b")
	c.Eventually(c.runs("b")).Should(gomega.BeTrue())
	c.Expect(c.api.Pod("default", "a").Status).To(gomega.Equal(status))
	c.Expect(c.runtime.Sandbox("uid-a")).To(gomega.Equal(sandbox))
}
