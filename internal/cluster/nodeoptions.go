package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/internal/datadir"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/containerd"
	"svc.dev/svc/svclet/podnetwork/plan"
)

// The values of --node.
const (
	NodeAuto   = "auto"
	NodeAlways = "true"
	NodeNever  = "false"
)

// The flags of a machine's pods on which defaults of the cluster depend.
const (
	PodNetworkFlag = "pod-network"
	PodCIDRFlag    = "pod-cidr"
)

// NodeOptions are the flags that decide whether this machine is a node of the
// cluster, and what kind of one.
type NodeOptions struct {
	Mode string
	// PodNetwork is how pods of several machines reach each other: one of plan.Modes.
	PodNetwork string
	// ClusterCIDR are the ranges from which nodes get addresses for pods, with a comma
	// between; empty if they get none.
	ClusterCIDR string
	// ExternalCloud is whether a cloud controller manager completes the node.
	ExternalCloud bool

	endpoint string
	name     string
	bridge   string
	podCIDR  string
	proxy    bool
	policies bool
	dns      bool

	port, healthzPort int32
	cgroupRoot        string
	resolvConf        string
}

// NewNodeOptions returns the defaults.
func NewNodeOptions() *NodeOptions {
	defaults := config.Default()
	return &NodeOptions{Mode: NodeAuto, PodNetwork: plan.HostRoutes, bridge: containerd.DefaultBridge, proxy: true, policies: true, dns: true, port: defaults.Port, healthzPort: *defaults.HealthzPort, resolvConf: *defaults.ResolverConfig}
}

// AddFlags adds the flags.
func (o *NodeOptions) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Mode, "node", o.Mode,
		"Whether this machine runs pods: true, false, or auto, which means to run them if root runs svc, on Linux, and containerd, runc and the CNI plugins are installed.")
	flags.Lookup("node").NoOptDefVal = NodeAlways
	flags.StringVar(&o.endpoint, "container-runtime-endpoint", o.endpoint,
		"Socket of a container runtime that runs already (unix:///run/containerd/containerd.sock). By default svc up runs a containerd of its own.")
	flags.StringVar(&o.name, "hostname-override", o.name, "Name of the node. The default is the name of this machine.")
	flags.StringVar(&o.bridge, "node-bridge", o.bridge, "Network interface, made as needed, to which svc's own containerd connects pods.")
	flags.StringVar(&o.podCIDR, PodCIDRFlag, o.podCIDR,
		"Addresses for the pods of this machine, until the cluster gives its node others. The default is "+containerd.DefaultPodCIDR+", or what they were before. With this flag --allocate-node-cidrs is off unless it is given: use --cluster-cidr for several machines.")
	flags.StringVar(&o.PodNetwork, PodNetworkFlag, o.PodNetwork,
		"How the pods of this machine and those of machines that join reach each other: host-routes, by routes to machines on the same network; vxlan, in UDP packets between machines (port 8472); or none, which leaves that to another network. The default without --allocate-node-cidrs is none.")
	flags.BoolVar(&o.proxy, "service-proxy", o.proxy, "Route the addresses of services to their endpoints with nftables. Turn it off to use another proxy.")
	flags.BoolVar(&o.policies, "network-policy", o.policies, "Filter the connections of pods with nftables, as network policies require. Turn it off to use another implementation.")
	flags.BoolVar(&o.dns, "dns", o.dns, "Answer questions about names of services, at the tenth address of --service-cluster-ip-range, and let pods ask there. Turn it off to use another DNS server: pods ask at the service kube-system/kube-dns while that has endpoints.")
	flags.StringVar(&o.resolvConf, "resolv-conf", o.resolvConf, "File with the machine's resolvers: pods with the dnsPolicy Default use them, and questions about names outside of the cluster are forwarded to them.")
	flags.Int32Var(&o.port, "node-port", o.port, "Port at which the API server reaches the node agent, on all addresses; 0 picks a free one.")
	flags.Int32Var(&o.healthzPort, "node-healthz-port", o.healthzPort, "Port of the node agent's health endpoint, on the loopback address; 0 means none.")
	flags.StringVar(&o.cgroupRoot, "cgroup-root", o.cgroupRoot, "Existing cgroup that becomes the parent of the pods' cgroups. By default svc creates one.")
}

// Validate returns what is wrong with the flags, apart from what depends on the
// machine.
func (o *NodeOptions) Validate(network *options.Network) []error {
	var errs []error
	if o.Mode != NodeAuto && o.Mode != NodeAlways && o.Mode != NodeNever {
		errs = append(errs, fmt.Errorf("--node: %q is not auto, true or false", o.Mode))
	}
	if problems := validation.IsDNS1123Subdomain(o.name); o.name != "" && len(problems) > 0 {
		errs = append(errs, fmt.Errorf("--hostname-override: %q cannot name a node: %s", o.name, problems[0]))
	}
	for name, port := range map[string]int32{"node-port": o.port, "node-healthz-port": o.healthzPort} {
		if port < 0 || port > 65535 {
			errs = append(errs, fmt.Errorf("--%s: %d is not a port: choose one from 0 to 65535", name, port))
		}
	}
	if !slices.Contains(plan.Modes(), o.PodNetwork) {
		errs = append(errs, fmt.Errorf("--%s: %q is not one of %s", PodNetworkFlag, o.PodNetwork, strings.Join(plan.Modes(), ", ")))
	}
	c := o.Containerd("/", containerd.Programs{})
	if err := c.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--node-bridge, --pod-cidr: %w", err))
	}
	if err := checkOverlap(c.PodCIDRs, network); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// checkOverlap returns an error if pods of the given ranges could get addresses
// of services.
func checkOverlap(podCIDRs []string, network *options.Network) error {
	services, err := network.ServiceCIDRs()
	if err != nil {
		return nil // options.Validate reports it
	}
	for _, cidr := range podCIDRs {
		for _, service := range services {
			if prefix, err := netip.ParsePrefix(cidr); err == nil && prefix.Overlaps(service) {
				return fmt.Errorf("--pod-cidr: the pods' range %s overlaps with %s of --service-cluster-ip-range: choose another one for either", cidr, service)
			}
		}
	}
	return nil
}

// nodeName returns the node's name: that of the machine in lower case, as for
// kubelet, unless a flag sets another.
func (o *NodeOptions) nodeName() (string, error) {
	if o.name != "" {
		return o.name, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("read the host name: %w", err)
	}
	name = strings.ToLower(strings.TrimSpace(name))
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return "", fmt.Errorf("this machine's name %q cannot name a node: %s; choose one with --hostname-override", name, problems[0])
	}
	return name, nil
}

// programs finds the programs that run pods. An error says in one line why this
// machine cannot run them.
func (o *NodeOptions) programs() (containerd.Programs, error) {
	switch {
	case runtime.GOOS != "linux":
		return containerd.Programs{}, errors.New("only Linux runs pods")
	case os.Geteuid() != 0:
		return containerd.Programs{}, errors.New("only root can run pods")
	case o.endpoint != "":
		return containerd.Programs{}, nil
	}
	return containerd.Find(containerd.DefaultSearch())
}

// Containerd is the configuration of the containerd that svc runs itself on a
// data directory.
func (o *NodeOptions) Containerd(dir datadir.Dir, programs containerd.Programs) containerd.Config {
	c := containerd.Config{
		Dir:          dir.Containerd(),
		Programs:     programs,
		Bridge:       o.bridge,
		PodNetwork:   o.PodNetwork != plan.None,
		ServiceProxy: o.proxy,

		RegistryDir: containerd.DefaultRegistryDir,
	}
	if o.podCIDR != "" {
		c.PodCIDRs = strings.Split(o.podCIDR, ",")
	}
	return c
}
