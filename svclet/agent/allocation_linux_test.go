package agent

import (
	"slices"
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/cpuset"

	"svc.dev/svc/svclet/cgroup"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/container"
	"svc.dev/svc/svclet/runtime/runtimetest"
	"svc.dev/svc/svclet/server/metrics"
	"svc.dev/svc/svclet/topology"
)

// startStatic starts an agent whose pods can have CPUs alone, and returns those of the machine, of
// which the first is reserved.
func startStatic(t *testing.T) (*machine, cpuset.CPUSet) {
	t.Helper()
	of, err := topology.Read("/")
	if err != nil {
		t.Fatal(err)
	}
	all := of.All()
	if all.Size() < 2 {
		t.Skip("the machine has one CPU, which is reserved")
	}
	m := newMachine(t, runtimetest.Options{})
	m.adjust = func(_ *config.Flags, c *config.Configuration) {
		c.CPUManagerPolicy, c.ReservedSystemCPUs = config.CPUManagerStatic, cpuset.New(all.List()[0]).String()
	}
	m.start()
	return m, all
}

func TestAGuaranteedPodHasItsCPUsAloneAcrossARestart(t *testing.T) {
	m, all := startStatic(t)
	m.write("shared", "")
	m.Eventually(m.isReady("shared")).Should(gomega.BeTrue())
	m.Expect(m.cpus("shared")).To(gomega.Equal(all.String()))

	const resources = ", resources: {limits: {cpu: 1, memory: 1Mi}}"
	m.write("own", resources)
	m.Eventually(m.isReady("own")).Should(gomega.BeTrue())
	own, err := cpuset.Parse(m.cpus("own"))
	m.Expect(err).NotTo(gomega.HaveOccurred())
	m.Expect(own.Size()).To(gomega.Equal(1))
	m.Expect(own.Contains(all.List()[0])).To(gomega.BeFalse())
	m.Eventually(func() string { return m.cpus("shared") }).Should(gomega.Equal(all.Difference(own).String()))

	m.stop()
	m.start()
	m.Eventually(m.isReady("own")).Should(gomega.BeTrue())
	m.Expect(m.agent.pods.allocations.CPUs(m.pod("own").UID, "app")).To(gomega.Equal(own.String()))
	m.erase("own")
	m.Eventually(func() string { return m.cpus("shared") }).Should(gomega.Equal(all.String()))
}

func TestTheCFSQuotaLimitsExclusiveCPUsOnlyAtReleasesBefore133(t *testing.T) {
	m, _ := startStatic(t)
	const resources = ", resources: {limits: {cpu: 1, memory: 1Mi}}"
	m.write("new", resources)
	m.Eventually(m.isReady("new")).Should(gomega.BeTrue())
	m.Expect(m.quota("new")).To(gomega.BeEquivalentTo(-1))
	m.Expect(m.pod("new").Status.ContainerStatuses[0].Resources.Limits.Cpu().String()).To(gomega.Equal("1"))
	m.erase("new")
	m.Eventually(func() types.UID { return m.pod("new").UID }).Should(gomega.BeEmpty())

	m.stop()
	m.gates = func(g *config.Gates) { g.QuotaOfExclusiveCPUs = true }
	m.start()
	m.write("old", resources)
	m.Eventually(m.isReady("old")).Should(gomega.BeTrue())
	m.Expect(m.quota("old")).To(gomega.BeEquivalentTo(100000))
}

// pinned are pods that have exclusive CPUs.
type pinned []types.UID

func (p pinned) HasExclusiveCPUs(pod types.UID, _ string) bool { return p.PodHasExclusiveCPUs(pod) }
func (p pinned) PodHasExclusiveCPUs(pod types.UID) bool        { return slices.Contains(p, pod) }

func TestTheCgroupsOfPodsAreExemptFromTheCFSQuotaAsTheirContainersAre(t *testing.T) {
	base := common{Config: Config{Configuration: config.Default()}, metrics: metrics.New("node", clock.RealClock{})}
	of := func(containers container.Options) cgroup.CPUQuota {
		options, err := cgroupOptions(base, resources{}, containers)
		if err != nil {
			t.Fatal(err)
		}
		return options.CPU
	}
	if quota := of(container.Options{ExclusiveCPUs: pinned{"own"}}); !quota.Enforce || !quota.Exempt("own") || quota.Exempt("shared") {
		t.Errorf("enforced: %v, exempt: %v, %v", quota.Enforce, quota.Exempt("own"), quota.Exempt("shared"))
	}
	if quota := of(container.Options{}); !quota.Enforce || quota.Exempt != nil {
		t.Errorf("before 1.33 enforced: %v, with exemptions: %v", quota.Enforce, quota.Exempt != nil)
	}
}

// quota returns the CFS quota of the running container of a pod.
func (m *machine) quota(name string) int64 {
	m.Helper()
	id := m.runtime.Container(m.pod(name).UID, "app")
	answer, err := m.runtime.ContainerStatus(m.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	m.Expect(err).NotTo(gomega.HaveOccurred())
	return answer.GetStatus().GetResources().GetLinux().GetCpuQuota()
}

// cpus returns the CPUs of the running container of a pod.
func (m *machine) cpus(name string) string {
	return m.runtime.CPUs(m.runtime.Container(m.pod(name).UID, "app"))
}
