package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Allocations counts the attempts to allocate addresses and node ports, in the
// metrics of kube-apiserver 1.28.
type Allocations struct {
	registry                  *prometheus.Registry
	addresses, ports          *prometheus.CounterVec
	addressErrors, portErrors *prometheus.CounterVec
}

// NewAllocations returns counters without series.
func NewAllocations() *Allocations {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kube_apiserver_" + name, Help: "[ALPHA] " + help}, append(labels, "scope"))
	}
	a := &Allocations{
		registry:      prometheus.NewRegistry(),
		addresses:     counter("clusterip_allocator_allocation_total", "Number of Cluster IPs allocations", "cidr"),
		addressErrors: counter("clusterip_allocator_allocation_errors_total", "Number of errors trying to allocate Cluster IPs", "cidr"),
		ports:         counter("nodeport_allocator_allocation_total", "Number of NodePort allocations"),
		portErrors:    counter("nodeport_allocator_allocation_errors_total", "Number of errors trying to allocate NodePort"),
	}
	a.registry.MustRegister(a.addresses, a.addressErrors, a.ports, a.portErrors)
	return a
}

// Address counts the result of an attempt to allocate an address of a range. static
// reports whether the client named it.
func (a *Allocations) Address(cidr string, static bool, err error) {
	pick(a.addresses, a.addressErrors, err).WithLabelValues(cidr, scope(static)).Inc()
}

// Port counts the result of an attempt to allocate a node port.
func (a *Allocations) Port(static bool, err error) {
	pick(a.ports, a.portErrors, err).WithLabelValues(scope(static)).Inc()
}

func pick(total, errs *prometheus.CounterVec, err error) *prometheus.CounterVec {
	if err != nil {
		return errs
	}
	return total
}

func scope(static bool) string {
	if static {
		return "static"
	}
	return "dynamic"
}

// add adds the families that have series.
func (a *Allocations) add(families map[string]*dto.MetricFamily) error {
	own, err := a.registry.Gather()
	for _, f := range own {
		families[f.GetName()] = f
	}
	return err
}
