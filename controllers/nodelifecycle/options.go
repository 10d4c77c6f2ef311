package nodelifecycle

import (
	"fmt"
	"math"
	"time"

	"github.com/spf13/pflag"

	"svc.dev/svc/controllers/nodelifecycle/fleet"
)

// options are the values of the flags.
type options struct {
	monitorPeriod, monitorGracePeriod, startupGracePeriod time.Duration
	evictionRate, secondaryEvictionRate                   float32
	largeCluster                                          int
	unhealthyZone                                         float32
}

// newOptions returns the defaults of Kubernetes 1.36.
func newOptions() *options {
	return &options{
		monitorPeriod: 5 * time.Second, monitorGracePeriod: 50 * time.Second, startupGracePeriod: time.Minute,
		evictionRate: 0.1, secondaryEvictionRate: 0.01, largeCluster: 50, unhealthyZone: 0.55,
	}
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.monitorPeriod, "node-monitor-period", o.monitorPeriod,
		"Has no effect: nodes are watched, and synced when their grace period ends.")
	fs.DurationVar(&o.monitorGracePeriod, "node-monitor-grace-period", o.monitorGracePeriod,
		"How long a node may be silent before it is unreachable. Must be several times the interval of the nodes' heartbeats.")
	fs.DurationVar(&o.startupGracePeriod, "node-startup-grace-period", o.startupGracePeriod,
		"How long a node that has never posted its status may be silent before it is unreachable.")
	fs.Float32Var(&o.evictionRate, "node-eviction-rate", o.evictionRate,
		"From how many nodes per second of a zone pods are evicted because the nodes are not ready. 0: none.")
	fs.Float32Var(&o.secondaryEvictionRate, "secondary-node-eviction-rate", o.secondaryEvictionRate,
		"What --node-eviction-rate is for a zone that is unhealthy (--unhealthy-zone-threshold) and large (--large-cluster-size-threshold). It is 0 for one that is unhealthy and not large.")
	fs.IntVar(&o.largeCluster, "large-cluster-size-threshold", o.largeCluster,
		"A zone of more nodes than this is large: see --secondary-node-eviction-rate.")
	fs.Float32Var(&o.unhealthyZone, "unhealthy-zone-threshold", o.unhealthyZone,
		"The fraction of the nodes of a zone that are not ready, at least three, from which on the zone is unhealthy.")
}

func (o *options) validate() []error {
	var errs []error
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{
		{"node-monitor-grace-period", o.monitorGracePeriod},
		{"node-startup-grace-period", o.startupGracePeriod},
	} {
		if d.value <= 0 {
			errs = append(errs, fmt.Errorf("--%s: %s must be positive", d.flag, d.value))
		}
	}
	for _, rate := range []struct {
		flag  string
		value float32
	}{
		{"node-eviction-rate", o.evictionRate},
		{"secondary-node-eviction-rate", o.secondaryEvictionRate},
	} {
		if rate.value < 0 || math.IsNaN(float64(rate.value)) {
			errs = append(errs, fmt.Errorf("--%s: %g must be 0 or more", rate.flag, rate.value))
		}
	}
	if o.largeCluster < 0 {
		errs = append(errs, fmt.Errorf("--large-cluster-size-threshold: %d must not be negative", o.largeCluster))
	}
	if o.unhealthyZone < 0 || o.unhealthyZone > 1 || math.IsNaN(float64(o.unhealthyZone)) {
		errs = append(errs, fmt.Errorf("--unhealthy-zone-threshold: %g must be between 0 and 1", o.unhealthyZone))
	}
	return errs
}

func (o *options) config() fleet.Config {
	return fleet.Config{
		GracePeriod: o.monitorGracePeriod, StartupGracePeriod: o.startupGracePeriod,
		EvictionRate: float64(o.evictionRate), SecondaryEvictionRate: float64(o.secondaryEvictionRate),
		LargeZone: o.largeCluster, UnhealthyZone: float64(o.unhealthyZone),
	}
}
