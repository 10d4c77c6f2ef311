package svclet

import (
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
