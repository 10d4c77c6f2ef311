package agent

import (
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/utils/cpuset"

	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/runtime/runtimetest"
	"svc.dev/svc/svclet/topology"
)

func TestAGuaranteedPodHasItsCPUsAloneAcrossARestart(t *testing.T) {
	machine, err := topology.Read("/")
	if err != nil {
		t.Fatal(err)
	}
	all := machine.All().List()
	if len(all) < 2 {
		t.Skip("the machine has one CPU, which is reserved")
	}
	m := newMachine(t, runtimetest.Options{})
	m.adjust = func(_ *config.Flags, c *config.Configuration) {
		c.CPUManagerPolicy, c.ReservedSystemCPUs = config.CPUManagerStatic, cpuset.New(all[0]).String()
	}
	m.start()
	m.write("shared", "")
	m.Eventually(m.isReady("shared")).Should(gomega.BeTrue())
	m.Expect(m.cpus("shared")).To(gomega.Equal(machine.All().String()))

	const resources = ", resources: {limits: {cpu: 1, memory: 1Mi}}"
	m.write("own", resources)
	m.Eventually(m.isReady("own")).Should(gomega.BeTrue())
	own, err := cpuset.Parse(m.cpus("own"))
	m.Expect(err).NotTo(gomega.HaveOccurred())
	m.Expect(own.Size()).To(gomega.Equal(1))
	m.Expect(own.Contains(all[0])).To(gomega.BeFalse())
	m.Eventually(func() string { return m.cpus("shared") }).Should(gomega.Equal(machine.All().Difference(own).String()))

	m.stop()
	m.start()
	m.Eventually(m.isReady("own")).Should(gomega.BeTrue())
	m.Expect(m.agent.pods.allocations.CPUs(m.pod("own").UID, "app")).To(gomega.Equal(own.String()))
	m.erase("own")
	m.Eventually(func() string { return m.cpus("shared") }).Should(gomega.Equal(machine.All().String()))
}

// cpus returns the CPUs of the running container of a pod.
func (m *machine) cpus(name string) string {
	return m.runtime.CPUs(m.runtime.Container(m.pod(name).UID, "app"))
}
