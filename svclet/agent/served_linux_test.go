package agent

import (
	"crypto/tls"
	"fmt"
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/runtime/runtimetest"
)

func TestTheServersKeyExchangesAreThoseOfTheConfiguration(t *testing.T) {
	m := newMachine(t, runtimetest.Options{})
	m.adjust = func(_ *config.Flags, c *config.Configuration) {
		c.EnableServer, c.Address, c.Port, c.ReadOnlyPort, c.HealthzPort = ptr.To(true), "127.0.0.1", 0, 0, ptr.To[int32](0)
		c.TLSCurvePreferences = []int32{int32(tls.CurveP384)}
	}
	m.start()
	for offered, taken := range map[tls.CurveID]bool{tls.CurveP384: true, tls.X25519: false} {
		d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{offered}}}
		c, err := d.DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", m.agent.listeners.Port()))
		if err == nil {
			c.Close()
		}
		m.Expect(err == nil).To(gomega.Equal(taken), "%s: %v", offered, err)
	}
}
