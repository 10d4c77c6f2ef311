package agent

import (
	"sync"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/svclet/runtime/runtimetest"
)

// hanging are cgroups whose files of QoS classes cannot be written: each write
// hangs until the gate opens.
type hanging struct {
	cgroups
	started chan struct{}
	gate    chan struct{}
	once    sync.Once
}

func (h *hanging) UpdateClasses([]*corev1.Pod) error {
	h.once.Do(func() { close(h.started) })
	<-h.gate
	return nil
}

func TestPodsStartEndAndAreReportedWhileQoSCgroupWritesHang(t *testing.T) {
	c := newCluster(t)
	hung := &hanging{started: make(chan struct{}), gate: make(chan struct{})}
	c.overrides.cgroups = func(real cgroups) cgroups {
		hung.cgroups = real
		return hung
	}
	c.start()
	// It is opened before the agent is stopped, which waits for the write.
	c.Cleanup(sync.OnceFunc(func() { close(hung.gate) }))
	c.create("a")
	c.Eventually(hung.started).Should(gomega.BeClosed())
	c.Eventually(c.runs("a")).Should(gomega.BeTrue())
	c.create("b")
	c.Eventually(c.runs("b")).Should(gomega.BeTrue())
	c.runtime.End(c.runtime.Container("uid-a", "app"), runtimetest.End{Code: 3})
	c.Eventually(func() int32 {
		if all := c.api.Pod("default", "a").Status.ContainerStatuses; len(all) == 1 {
			return all[0].RestartCount
		}
		return 0
	}).Should(gomega.BeNumerically(">=", 1)) // An event of the runtime has been handled.
	c.doom("b")
	c.Eventually(c.gone("b")).Should(gomega.BeTrue())
	c.Expect(c.agent.pods.List()).To(gomega.ContainElement(gomega.HaveField("Name", "a"))) // GET /pods
	c.Expect(c.agent.pods.Progress()).To(gomega.BeTemporally("~", c.agent.Clock.Now(), 60e9))
}
