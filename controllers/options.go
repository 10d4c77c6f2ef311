package controllers

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	cliflag "k8s.io/component-base/cli/flag"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/internal/fleetaddress"
)

// Options are the flags of the controller manager, with the names and defaults of
// kube-controller-manager's.
type Options struct {
	// Controllers are the values of --controllers; see Pick.
	Controllers []string
	// Included reports whether "*" enables a controller. The default is the function of
	// that name.
	Included func(controller.Controller) bool
	// Gate returns the value of a feature gate, and whether the user has set it. By
	// default no gate is set.
	Gate     func(name string) (on, set bool)
	Election Election
	// CloudProvider is empty or [CloudExternal].
	CloudProvider string
	// RootCAFile has the certificates by which pods verify the API server. The
	// default is those by which the manager does.
	RootCAFile string

	// all are all controllers. AddFlags adds their flags, too.
	all []controller.Controller
	// flags are the flags of the controllers; set by AddFlags.
	flags map[string]*pflag.Flag
}

// Election are the flags of leader election.
type Election struct {
	// Enabled may be false only for the only manager of a cluster.
	Enabled bool
	// LeaseDuration is how long other managers wait for a leader that does not
	// renew its lease. RenewDeadline is when such a leader stops. RetryPeriod is the
	// time between two attempts to renew or to acquire the lease.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// AtHost is whether the Lease is one of the host of a fleet, instead of the fleet's.
	AtHost bool
	// Namespace and Name are those of the Lease.
	Namespace, Name string
}

// CloudExternal is the --cloud-provider of clusters with a cloud controller manager.
const CloudExternal = "external"

// leaseName is also the name of kube-controller-manager's lease, so that the two
// never run at the same time.
const leaseName = "kube-controller-manager"

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		Controllers: []string{"*"},
		Included:    Included,
		Gate:        func(string) (on, set bool) { return false, false },
		Election: Election{
			Enabled:       true,
			LeaseDuration: 15 * time.Second,
			RenewDeadline: 10 * time.Second,
			RetryPeriod:   2 * time.Second,
			Namespace:     "kube-system",
			Name:          leaseName,
		},
		all: All(),
	}
}

// Picked returns the controllers that --controllers enables for an API server; server
// is its URL.
func (o *Options) Picked(server string) ([]controller.Controller, error) {
	return Pick(o.all, o.Controllers, fleetaddress.IsAddress(server), o.Included)
}

// AddFlags adds the flags, with a flag set for each controller.
func (o *Options) AddFlags(sets *cliflag.NamedFlagSets) {
	fs := sets.FlagSet("controllers")
	fs.StringSliceVar(&o.Controllers, "controllers", o.Controllers, fmt.Sprintf(
		"Controllers to run: * is all but those on demand and, in a fleet behind a host, those that do the host's work; foo is the one named foo, -foo is all but that. Empty runs none.\nAll controllers: %s.", o.listed()))
	fs.StringVar(&o.CloudProvider, cloudFlag, o.CloudProvider,
		"Empty, or external: the cluster has a cloud controller manager. The controllers are the same, as those for clouds run there. With external, svc up registers its node as one that the cloud controller manager completes, and leaves services of type LoadBalancer to it.")
	fs.StringVar(&o.RootCAFile, rootCAFlag, o.RootCAFile,
		"A PEM file of the certificates by which pods verify the API server. They are published in the config map kube-root-ca.crt of each namespace. Default: those by which the controllers verify it.")

	fs = sets.FlagSet("leader election")
	fs.BoolVar(&o.Election.Enabled, "leader-elect", o.Election.Enabled,
		"Run the controllers only while holding a lease, so that one of several managers is active. Without it, there must be only one manager, and it must be restarted after a restore of etcd from a snapshot.")
	fs.DurationVar(&o.Election.LeaseDuration, "leader-elect-lease-duration", o.Election.LeaseDuration,
		"How long other managers wait for a leader that does not renew its lease.")
	fs.DurationVar(&o.Election.RenewDeadline, "leader-elect-renew-deadline", o.Election.RenewDeadline,
		"How long the leader tries to renew its lease before it stops its controllers. Shorter than --leader-elect-lease-duration.")
	fs.DurationVar(&o.Election.RetryPeriod, "leader-elect-retry-period", o.Election.RetryPeriod,
		"The time between two attempts to acquire or renew the lease. Shorter than --leader-elect-renew-deadline.")
	fs.BoolVar(&o.Election.AtHost, atHostFlag, o.Election.AtHost,
		"At the own address of a fleet, hold a lease of the host instead of one of the fleet: managers that cannot reach the fleet wait then, too. It needs the rights to get, create and update that lease, and to create events, at the host. Name the lease by --leader-elect-resource-namespace or --leader-elect-resource-name: the default is that of the host's own controllers. The manager must be restarted after a restore of the fleet's etcd from a snapshot.")
	fs.StringVar(&o.Election.Namespace, "leader-elect-resource-namespace", o.Election.Namespace, "The namespace of the lease.")
	fs.StringVar(&o.Election.Name, "leader-elect-resource-name", o.Election.Name, "The name of the lease. The manager has permission for the default name only; grant it for another one.")

	o.flags = map[string]*pflag.Flag{}
	for _, c := range o.all {
		if c.Flags != nil {
			fs := sets.FlagSet(c.Name + " controller")
			c.Flags(fs)
			fs.VisitAll(func(f *pflag.Flag) { o.flags[f.Name] = f })
		}
	}
}

// Set sets a flag of a controller that another component of the program has, too:
// on the command line only one of the two can be set. It must be called after
// AddFlags.
func (o *Options) Set(flag, value string) error {
	f := o.flags[flag]
	if f == nil {
		return fmt.Errorf("--%s: no controller has this flag", flag)
	}
	if err := f.Value.Set(value); err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	return nil
}

// SetDefault is Set, unless the user has set the flag.
func (o *Options) SetDefault(flag, value string) error {
	if f := o.flags[flag]; f != nil && f.Changed {
		return nil
	}
	return o.Set(flag, value)
}

const (
	rootCAFlag = "root-ca-file"
	cloudFlag  = "cloud-provider"
	atHostFlag = "leader-elect-at-host"
)

// rootCA returns the certificates by which pods verify the API server: those of
// --root-ca-file or, without it, those by which the connection does.
func (o *Options) rootCA(api *rest.Config) ([]byte, error) {
	if o.RootCAFile == "" {
		of := rest.CopyConfig(api)
		if err := rest.LoadTLSFiles(of); err != nil {
			return nil, fmt.Errorf("certificates of the API server: %w", err)
		}
		return of.CAData, nil
	}
	content, err := os.ReadFile(o.RootCAFile)
	if err == nil {
		if _, err = cert.ParseCertsPEM(content); err != nil {
			err = fmt.Errorf("%s: %w", o.RootCAFile, err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("--%s: %w; name a PEM file of certificates", rootCAFlag, err)
	}
	return content, nil
}

// listed returns the names of all controllers, with a mark for those on demand.
func (o *Options) listed() string {
	var listed []string
	for _, c := range o.all {
		name := c.Name
		if c.OnDemand {
			name += " (on demand)"
		}
		listed = append(listed, name)
	}
	return strings.Join(listed, ", ")
}

// Validate returns one error for each invalid flag.
func (o *Options) Validate() []error {
	var errs []error
	if _, err := o.Picked(""); err != nil {
		errs = append(errs, err)
	}
	for _, name := range []struct{ flag, value string }{
		{"leader-elect-resource-namespace", o.Election.Namespace}, {"leader-elect-resource-name", o.Election.Name},
	} {
		if problems := validation.IsDNS1123Subdomain(name.value); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("--%s: invalid name %q: %s", name.flag, name.value, strings.Join(problems, "; ")))
		}
	}
	if o.CloudProvider != "" && o.CloudProvider != CloudExternal {
		errs = append(errs, fmt.Errorf("--%s: %q must be empty or %s: for a cloud, run its cloud controller manager and set %s", cloudFlag, o.CloudProvider, CloudExternal, CloudExternal))
	}
	if o.Election.AtHost && !o.Election.Enabled {
		errs = append(errs, fmt.Errorf("--%s: has no effect with --leader-elect=false; leave one of them out", atHostFlag))
	}
	if e := o.Election; e.AtHost && e.Namespace == metav1.NamespaceSystem && e.Name == leaseName {
		errs = append(errs, fmt.Errorf("--%s: the lease %s/%s is that of the host's own controllers; name another one by --leader-elect-resource-namespace or --leader-elect-resource-name", atHostFlag, e.Namespace, e.Name))
	}
	// A retry is delayed by up to 1.2 periods, because of its jitter.
	if e := o.Election; e.Enabled {
		if e.LeaseDuration <= e.RenewDeadline {
			errs = append(errs, fmt.Errorf("--leader-elect-lease-duration: %s must be longer than --leader-elect-renew-deadline, %s", e.LeaseDuration, e.RenewDeadline))
		}
		if e.RetryPeriod <= 0 || float64(e.RenewDeadline) <= 1.2*float64(e.RetryPeriod) {
			errs = append(errs, fmt.Errorf("--leader-elect-retry-period: %s must be positive, and 1.2 times of it shorter than --leader-elect-renew-deadline, %s", e.RetryPeriod, e.RenewDeadline))
		}
	}
	if o.RootCAFile != "" {
		if _, err := o.rootCA(nil); err != nil {
			errs = append(errs, err)
		}
	}
	for _, c := range o.all {
		if c.Validate != nil {
			errs = append(errs, c.Validate()...)
		}
	}
	return errs
}
