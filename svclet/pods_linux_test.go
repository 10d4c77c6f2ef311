package svclet

import (
	"sync/atomic"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/runtime/runtimetest"
)

func TestAStaticPodThatComesBackUnchangedRunsAgain(t *testing.T) {
	m := newMachine(t, runtimetest.Options{})
	m.start()
	m.write("a", "")
	m.Eventually(m.isReady("a")).Should(gomega.BeTrue())
	uid := m.pod("a").UID
	first := m.runtime.Container(uid, "app")
	release := m.held("StopContainer")
	m.erase("a")
	m.Eventually(m.calls("StopContainer")).Should(gomega.Equal(1))
	m.write("a", "") // while its first life ends
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

func TestWhatRunsKeepsItsPlaceWhenTheAgentStartsAgain(t *testing.T) {
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

func TestAPodForWhichOthersMakeRoomBeginsWhenTheyHaveEnded(t *testing.T) {
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

// classes are cgroups that remember between how many pods the processors are
// divided.
type classes struct {
	cgroups
	active atomic.Int32
}

func (c *classes) UpdateClasses(active []*corev1.Pod) error {
	c.active.Store(int32(len(active)))
	return c.cgroups.UpdateClasses(active)
}

func TestAPodThatHasEndedHasNoShareOfTheProcessors(t *testing.T) {
	m := newMachine(t, runtimetest.Options{})
	var divided classes
	m.prepare = func(a *Agent) {
		divided.cgroups = a.pods.cgroups
		a.pods.cgroups = &divided
	}
	m.start()
	m.write("a", "}\n  restartPolicy: Never #")
	m.Eventually(m.isReady("a")).Should(gomega.BeTrue())
	m.Expect(divided.active.Load()).To(gomega.BeEquivalentTo(1))
	m.runtime.End(m.runtime.Container(m.pod("a").UID, "app"), runtimetest.End{})
	m.Eventually(divided.active.Load).Should(gomega.BeZero())
}
