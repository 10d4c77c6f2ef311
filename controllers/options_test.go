package controllers

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"svc.dev/svc/internal/fleetaddress"
)

func flags(o *Options) *pflag.FlagSet {
	var sets cliflag.NamedFlagSets
	o.AddFlags(&sets)
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, name := range sets.Order {
		all.AddFlagSet(sets.FlagSets[name])
	}
	return all
}

func TestValidate(t *testing.T) {
	for args, want := range map[string]string{
		"":                                  "",
		"--leader-elect-lease-duration=10s": "--leader-elect-lease-duration: 10s must be longer than --leader-elect-renew-deadline, 10s",
		"--leader-elect-lease-duration=10s --leader-elect=false":             "",
		"--leader-elect-retry-period=9s":                                     "--leader-elect-retry-period: 9s must be positive, and 1.2 times of it shorter than --leader-elect-renew-deadline, 10s",
		"--leader-elect-retry-period=0s":                                     "--leader-elect-retry-period: 0s must be positive, and 1.2 times of it shorter than --leader-elect-renew-deadline, 10s",
		"--leader-elect-resource-name=Not_A_Name":                            `--leader-elect-resource-name: invalid name "Not_A_Name"`,
		"--leader-elect-at-host":                                             "--leader-elect-at-host: the lease kube-system/kube-controller-manager is that of the host's own controllers; name another one",
		"--leader-elect-at-host --leader-elect-resource-namespace=svc":       "",
		"--leader-elect-resource-namespace=":                                 `--leader-elect-resource-namespace: invalid name ""`,
		"--controllers=nope":                                                 `--controllers: there is no controller "nope"`,
		"--cloud-provider=":                                                  "",
		"--cloud-provider=external":                                          "",
		"--cloud-provider=aws":                                               `--cloud-provider: "aws" must be empty or external: for a cloud, run its cloud controller manager and set external`,
		"--root-ca-file=/missing":                                            "--root-ca-file: open /missing: no such file or directory; name a PEM file of certificates",
		"--root-ca-file=/dev/null":                                           "--root-ca-file: /dev/null: data does not contain any valid RSA or ECDSA certificates; name a PEM file of certificates",
		"--local-path-class=/srv":                                            `--local-path-class: invalid name "/srv": a lowercase RFC 1123 subdomain`,
		"--local-path-class=":                                                "",
		"--scheduler-config=/missing":                                        "--scheduler-config: open /missing: no such file or directory; name a file with a KubeSchedulerConfiguration",
		"--node-eviction-rate=NaN":                                           "--node-eviction-rate: NaN must be 0 or more",
		"--secondary-node-eviction-rate=-1":                                  "--secondary-node-eviction-rate: -1 must be 0 or more",
		"--unhealthy-zone-threshold=NaN":                                     "--unhealthy-zone-threshold: NaN must be between 0 and 1",
		"--horizontal-pod-autoscaler-tolerance=NaN":                          "--horizontal-pod-autoscaler-tolerance: NaN must be 0 or more",
		"--concurrent-namespace-syncs=0":                                     "--concurrent-namespace-syncs: 0 must be at least 1",
		"--concurrent-namespace-syncs=-1 --leader-elect-lease-duration=-15s": "--leader-elect-lease-duration: -15s must be longer than --leader-elect-renew-deadline, 10s; --concurrent-namespace-syncs: -1 must be at least 1",
	} {
		o := NewOptions()
		if err := flags(o).Parse(strings.Fields(args)); err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		var got []string
		for _, err := range o.Validate() {
			got = append(got, err.Error())
		}
		if joined := strings.Join(got, "; "); want == "" && joined != "" || !strings.HasPrefix(joined, want) {
			t.Errorf("%q: %s, want %s", args, joined, want)
		}
	}
}

// TestConcurrencyFlagsAreThoseOfKubeControllerManager compares them with those of release 1.37, but
// for --concurrent-service-syncs, which is for clouds.
func TestConcurrencyFlagsAreThoseOfKubeControllerManager(t *testing.T) {
	want := []string{
		"concurrent-cron-job-syncs", "concurrent-daemonset-syncs", "concurrent-deployment-syncs", "concurrent-device-taint-eviction-syncs", "concurrent-disruption-syncs",
		"concurrent-endpoint-syncs", "concurrent-ephemeralvolume-syncs", "concurrent-gc-syncs", "concurrent-horizontal-pod-autoscaler-syncs", "concurrent-job-syncs",
		"concurrent-namespace-syncs", "concurrent-rc-syncs", "concurrent-replicaset-syncs", "concurrent-resource-quota-syncs", "concurrent-resourceclaim-syncs",
		"concurrent-service-endpoint-syncs", "concurrent-serviceaccount-token-syncs", "concurrent-statefulset-syncs", "concurrent-ttl-after-finished-syncs",
		"concurrent-validating-admission-policy-status-syncs", "mirroring-concurrent-service-endpoint-syncs",
	}
	var got []string
	all := flags(NewOptions())
	all.VisitAll(func(f *pflag.Flag) {
		if strings.Contains(f.Name, "concurrent-") {
			got = append(got, f.Name)
		}
	})
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	for _, name := range got {
		o := NewOptions()
		if err := flags(o).Parse([]string{"--" + name + "=0"}); err != nil {
			t.Error(err)
		}
		if errs := o.Validate(); len(errs) != 1 || errs[0].Error() != "--"+name+": 0 must be at least 1" {
			t.Errorf("--%s=0: %v", name, errs)
		}
	}
}

func TestEveryFlagSaysWhatItDoes(t *testing.T) {
	flags(NewOptions()).VisitAll(func(f *pflag.Flag) {
		if f.Usage == "" {
			t.Errorf("--%s has no description", f.Name)
		}
	})
}

func TestTwoSetsOfOptionsShareNothing(t *testing.T) {
	first, second := NewOptions(), NewOptions()
	if err := flags(first).Parse([]string{"--controllers=namespace", "--concurrent-namespace-syncs=3"}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(second.Controllers, []string{"*"}) {
		t.Errorf("the other's controllers are %v", second.Controllers)
	}
	if got := flags(second).Lookup("concurrent-namespace-syncs").Value.String(); got != "10" {
		t.Errorf("the other's flag is %s", got)
	}
}

func TestWhatTheHostDoesForAFleetIsLeftToItWithoutAFlag(t *testing.T) {
	const host = "https://10.0.0.1:6443"
	ofHost := []string{"namespace", "garbagecollector", "serviceaccount", "serviceaccount-token", "root-ca-cert-publisher",
		"clusterroleaggregation", "csrapproving", "csrsigning", "csrcleaner"}
	picked := func(server string, args ...string) []string {
		t.Helper()
		o := NewOptions()
		if err := flags(o).Parse(args); err != nil {
			t.Fatal(err)
		}
		all, err := o.Picked(server)
		if err != nil {
			t.Fatal(err)
		}
		return names(all)
	}
	standalone, fleet := picked(host), picked(host+fleetaddress.Path("fleet.svc.dev", "default"))
	for _, name := range ofHost {
		if !slices.Contains(standalone, name) {
			t.Errorf("%s does not run for a cluster of its own, where %v do", name, standalone)
		}
		if slices.Contains(fleet, name) {
			t.Errorf("%s runs in a fleet behind a host", name)
		}
	}
	for _, name := range []string{"deployment", "replicaset", "statefulset", "daemonset", "job", "cronjob", "scheduler", "nodelifecycle", "endpointslice", "resourcequota", "podgc"} {
		if !slices.Contains(fleet, name) {
			t.Errorf("%s does not run in a fleet, where %v do", name, fleet)
		}
	}
	if named := picked(host+fleetaddress.Path("fleet.svc.dev", "default"), "--controllers=*,namespace"); !slices.Contains(named, "namespace") {
		t.Errorf("namespace was named, and %v run", named)
	}
}
