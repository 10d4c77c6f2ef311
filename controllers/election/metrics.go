package election

import (
	"github.com/prometheus/client_golang/prometheus"

	"svc.dev/svc/controllers/controller"
)

// masterStatus returns the gauge that controller-runtime registers for client-go's
// elector, and registers it if it is missing.
func masterStatus() *prometheus.GaugeVec {
	return controller.Registered(prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "leader_election_master_status",
		Help: "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.",
	}, []string{"name"}))
}
