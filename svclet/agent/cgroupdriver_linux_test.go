package agent

import (
	"testing"

	"github.com/onsi/gomega"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/runtime/runtimetest"
)

func TestTheCgroupDriverIsThatOfTheRuntimeIfTheGateIsOn(t *testing.T) {
	for _, c := range []struct {
		name, configured, want string
		reported               *runtimeapi.CgroupDriver
		off, fails             bool
	}{
		{name: "systemd", configured: "cgroupfs", reported: ptr.To(runtimeapi.CgroupDriver_SYSTEMD), want: "systemd"},
		{name: "cgroupfs", configured: "systemd", reported: ptr.To(runtimeapi.CgroupDriver_CGROUPFS), want: "cgroupfs"},
		{name: "an old runtime", configured: "systemd", want: "systemd"},
		{name: "an unknown driver", configured: "cgroupfs", reported: ptr.To[runtimeapi.CgroupDriver](7), fails: true},
		{name: "without the gate", configured: "cgroupfs", reported: ptr.To(runtimeapi.CgroupDriver_SYSTEMD), off: true, want: "cgroupfs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t, runtimetest.Options{CgroupDriver: c.reported})
			m.adjust = func(_ *config.Flags, all *config.Configuration) { all.CgroupDriver = c.configured }
			m.gates = func(g *config.Gates) { g.CgroupDriverFromCRI = !c.off }
			if c.fails {
				_, err := m.attempt(t.Context())
				m.Expect(err).To(gomega.MatchError("the container runtime has the cgroup driver 7, which svclet does not know"))
				return
			}
			m.start()
			m.Expect(m.agent.Configuration.CgroupDriver).To(gomega.Equal(c.want))
		})
	}
}
