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
			all := config.Default()
			all.CgroupDriver, all.ContainerRuntimeEndpoint = c.configured, m.runtime.Endpoint()
			err := UseCgroupDriver(t.Context(), config.Gates{CgroupDriverFromCRI: !c.off}, all)
			if c.fails {
				m.Expect(err).To(gomega.MatchError("the container runtime has the cgroup driver 7, which svclet does not know"))
				return
			}
			m.Expect(err).NotTo(gomega.HaveOccurred())
			m.Expect(all.CgroupDriver).To(gomega.Equal(c.want))
		})
	}
}
