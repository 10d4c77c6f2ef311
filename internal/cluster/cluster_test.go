package cluster

import (
	"testing"
	"time"

	"k8s.io/utils/clock"

	"svc.dev/svc/internal/datadir"
)

// Otherwise the end of the process would cut off its components after ten seconds.
func TestAStopHasTimeAfterTheDelayOfTheAPIServer(t *testing.T) {
	c := configured(t, datadir.Dir(t.TempDir()), clock.RealClock{})
	for _, delay := range []time.Duration{0, time.Minute} {
		c.Server.Requests.ShutdownDelay = delay
		if got := c.group().StopTimeout; got != delay+10*time.Second {
			t.Errorf("with the delay %s a stop may take %s", delay, got)
		}
	}
}
