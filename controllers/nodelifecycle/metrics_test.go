package nodelifecycle

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"svc.dev/svc/controllers/nodelifecycle/fleet"
)

func TestZonesAreMeasured(t *testing.T) {
	m := newMetrics()
	const zone = "measured"
	m.measure([]fleet.Zone{{Name: zone, Nodes: 4, NotReady: 1}})
	for name, got := range map[string][2]float64{
		"size":      {testutil.ToFloat64(m.size.WithLabelValues(zone)), 4},
		"unhealthy": {testutil.ToFloat64(m.unhealthy.WithLabelValues(zone)), 1},
		"health":    {testutil.ToFloat64(m.health.WithLabelValues(zone)), 75},
	} {
		if got[0] != got[1] {
			t.Errorf("%s is %v, want %v", name, got[0], got[1])
		}
	}
	healthy := testutil.CollectAndCount(m.health)
	m.measure([]fleet.Zone{{Name: zone}})
	if got := testutil.CollectAndCount(m.health); got != healthy-1 {
		t.Errorf("an empty zone has a health: %d series, had %d", got, healthy)
	}
}
