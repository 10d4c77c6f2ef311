package controllers

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"

	"svc.dev/svc/controllers/controller"
)

// Options are the flags of the controllers. Their names and defaults are those
// of kube-controller-manager.
type Options struct {
	// Controllers says which controllers run; see Pick.
	Controllers []string
	Election    Election

	// all are the controllers that there are, whose flags these are, too.
	all []controller.Controller
	// flags are the flags of the controllers, once they have been added.
	flags map[string]*pflag.Flag
}

// Election says how several managers agree on the one that works.
type Election struct {
	// Enabled is false for a manager that is the only one for certain.
	Enabled bool
	// LeaseDuration is how long the others wait for a leader that does not
	// renew its lease; RenewDeadline is when such a leader gives up, and
	// RetryPeriod the time between two tries to renew or to take the lease.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// Namespace and Name are those of the Lease.
	Namespace, Name string
}

// leaseName is that of kube-controller-manager's lease, too: the two never work
// at the same time.
const leaseName = "kube-controller-manager"

// NewOptions are the defaults.
func NewOptions() *Options {
	return &Options{
		Controllers: []string{"*"},
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

// Picked are the controllers that the flag --controllers chooses.
func (o *Options) Picked() ([]controller.Controller, error) { return Pick(o.all, o.Controllers) }

// AddFlags adds the flags, by controller.
func (o *Options) AddFlags(sets *cliflag.NamedFlagSets) {
	fs := sets.FlagSet("controllers")
	fs.StringSliceVar(&o.Controllers, "controllers", o.Controllers, fmt.Sprintf(
		"Controllers to run: * is all that are not on demand, foo is the one named foo, -foo is all but that. Empty runs none.\nAll controllers: %s.", o.listed()))

	fs = sets.FlagSet("leader election")
	fs.BoolVar(&o.Election.Enabled, "leader-elect", o.Election.Enabled,
		"Work only while holding a lease, so that of several managers one works. Without it, there must be one manager only, and it must be restarted after a restore of etcd from a snapshot.")
	fs.DurationVar(&o.Election.LeaseDuration, "leader-elect-lease-duration", o.Election.LeaseDuration,
		"How long other managers wait for a leader that does not renew its lease.")
	fs.DurationVar(&o.Election.RenewDeadline, "leader-elect-renew-deadline", o.Election.RenewDeadline,
		"How long the leader tries to renew its lease before it stops to work. Shorter than --leader-elect-lease-duration.")
	fs.DurationVar(&o.Election.RetryPeriod, "leader-elect-retry-period", o.Election.RetryPeriod,
		"The time between two tries to take or renew the lease. Shorter than --leader-elect-renew-deadline.")
	fs.StringVar(&o.Election.Namespace, "leader-elect-resource-namespace", o.Election.Namespace, "The namespace of the lease.")
	fs.StringVar(&o.Election.Name, "leader-elect-resource-name", o.Election.Name, "The name of the lease. The rights of the manager are to the default; grant those to another one.")

	o.flags = map[string]*pflag.Flag{}
	for _, c := range o.all {
		if c.Flags != nil {
			fs := sets.FlagSet(c.Name + " controller")
			c.Flags(fs)
			fs.VisitAll(func(f *pflag.Flag) { o.flags[f.Name] = f })
		}
	}
}

// Set sets a flag of a controller that another part of the program has, too: a
// command line gives it to one of them only. The flags must have been added.
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

// listed are the names of all controllers; those that run on demand are marked.
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

// Validate returns what is wrong, one error for each flag.
func (o *Options) Validate() []error {
	var errs []error
	if _, err := o.Picked(); err != nil {
		errs = append(errs, err)
	}
	for _, name := range []struct{ flag, value string }{
		{"leader-elect-resource-namespace", o.Election.Namespace}, {"leader-elect-resource-name", o.Election.Name},
	} {
		if problems := validation.IsDNS1123Subdomain(name.value); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("--%s: %q is not a name: %s", name.flag, name.value, strings.Join(problems, "; ")))
		}
	}
	// Who waits for the lease looks after 1.2 periods at the latest.
	if e := o.Election; e.Enabled {
		if e.LeaseDuration <= e.RenewDeadline {
			errs = append(errs, fmt.Errorf("--leader-elect-lease-duration: %s must be longer than --leader-elect-renew-deadline, %s", e.LeaseDuration, e.RenewDeadline))
		}
		if e.RetryPeriod <= 0 || float64(e.RenewDeadline) <= 1.2*float64(e.RetryPeriod) {
			errs = append(errs, fmt.Errorf("--leader-elect-retry-period: %s must be positive, and 1.2 times of it shorter than --leader-elect-renew-deadline, %s", e.RetryPeriod, e.RenewDeadline))
		}
	}
	for _, c := range o.all {
		if c.Validate != nil {
			errs = append(errs, c.Validate()...)
		}
	}
	return errs
}
