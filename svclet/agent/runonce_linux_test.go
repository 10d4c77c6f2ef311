package agent

import (
	"testing"

	"github.com/onsi/gomega"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/svclet/runtime/runtimetest"
)

func TestRunOnceEndsWhenThePodsRunAndLeavesThemRunning(t *testing.T) {
	m := newMachine(t, runtimetest.Options{})
	m.write("a", "")
	m.write("b", "")
	m.Expect(m.made(t.Context()).RunOnce(t.Context())).To(gomega.Succeed())
	m.Expect(m.runtime.Pods()).To(gomega.HaveLen(2))
}

func TestRunOnceTellsWhichPodsHaveFailed(t *testing.T) {
	m := newMachine(t, runtimetest.Options{Behave: func(c *runtimeapi.ContainerConfig) runtimetest.Behaviour {
		if c.GetMetadata().GetName() == "app" && len(c.GetCommand()) > 0 {
			return runtimetest.Behaviour{EndsAfter: 1, End: runtimetest.End{Code: 3}}
		}
		return runtimetest.Behaviour{}
	}})
	m.write("good", "")
	m.write("bad", ", command: [\"false\"]}\n  - {name: other, image: app:1, command: [\"false\"]")
	err := m.made(t.Context()).RunOnce(t.Context())
	m.Expect(err).To(gomega.MatchError("pod default/bad-node has failed: container app keeps ending"))
}
