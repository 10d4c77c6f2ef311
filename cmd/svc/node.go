package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/svclet"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/containerd"
	"svc.dev/svc/svclet/host"
)

// The values of --node.
const (
	nodeAuto = "auto"
	nodeYes  = "true"
	nodeNo   = "false"
)

// nodeOptions say whether this machine is a node of the cluster that svc up
// runs, and what kind of one.
type nodeOptions struct {
	mode     string
	endpoint string
	name     string
	bridge   string
	podCIDR  string

	port, healthzPort int32
	cgroupRoot        string
}

func newNodeOptions() *nodeOptions {
	defaults := config.Default()
	return &nodeOptions{mode: nodeAuto, bridge: containerd.DefaultBridge, port: defaults.Port, healthzPort: *defaults.HealthzPort}
}

func (o *nodeOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.mode, "node", o.mode,
		"Whether this machine runs pods: true, false, or auto, which means to run them if root runs svc, on Linux, and containerd, runc and the CNI plugins are installed.")
	flags.Lookup("node").NoOptDefVal = nodeYes
	flags.StringVar(&o.endpoint, "container-runtime-endpoint", o.endpoint,
		"Socket of a container runtime that runs already (unix:///run/containerd/containerd.sock). By default svc up runs a containerd of its own.")
	flags.StringVar(&o.name, "hostname-override", o.name, "Name of the node. The default is the name of this machine.")
	flags.StringVar(&o.bridge, "node-bridge", o.bridge, "Network interface, made as needed, to which svc's own containerd connects pods.")
	flags.StringVar(&o.podCIDR, "pod-cidr", o.podCIDR,
		"Addresses for the pods of this machine, until the cluster gives its node others. The default is "+containerd.DefaultPodCIDR+", or what they were before.")
	flags.Int32Var(&o.port, "node-port", o.port, "Port at which the API server reaches the node agent, on all addresses; 0 picks a free one.")
	flags.Int32Var(&o.healthzPort, "node-healthz-port", o.healthzPort, "Port of the node agent's health endpoint, on the loopback address; 0 means none.")
	flags.StringVar(&o.cgroupRoot, "cgroup-root", o.cgroupRoot, "Cgroup, which must be there, in which those of pods are. The default is one that svc makes for itself.")
}

// validate looks at what does not depend on the machine.
func (o *nodeOptions) validate() []error {
	var errs []error
	if o.mode != nodeAuto && o.mode != nodeYes && o.mode != nodeNo {
		errs = append(errs, fmt.Errorf("--node: %q is not auto, true or false", o.mode))
	}
	if problems := validation.IsDNS1123Subdomain(o.name); o.name != "" && len(problems) > 0 {
		errs = append(errs, fmt.Errorf("--hostname-override: %q cannot name a node: %s", o.name, problems[0]))
	}
	for name, port := range map[string]int32{"node-port": o.port, "node-healthz-port": o.healthzPort} {
		if port < 0 || port > 65535 {
			errs = append(errs, fmt.Errorf("--%s: %d is not a port: choose one from 0 to 65535", name, port))
		}
	}
	if err := o.containerd("/", containerd.Programs{}).Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--node-bridge, --pod-cidr: %w", err))
	}
	return errs
}

// apart is an error if pods of the given ranges could get addresses of services.
func apart(pods []string, network *options.Network) error {
	services, err := network.ServiceCIDRs()
	if err != nil {
		return nil // it is reported by its own check
	}
	for _, cidr := range pods {
		for _, service := range services {
			if prefix, err := netip.ParsePrefix(cidr); err == nil && prefix.Overlaps(service) {
				return fmt.Errorf("--pod-cidr: the pods' range %s overlaps with %s of --service-cluster-ip-range: choose another one for either", cidr, service)
			}
		}
	}
	return nil
}

// nodeName is the node's, by the rule of kubelet: the machine's name in lower
// case.
func (o *nodeOptions) nodeName() (string, error) {
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

// programs are what it takes to run pods here. An error says in one line why
// they cannot be run.
func (o *nodeOptions) programs() (containerd.Programs, error) {
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

// containerd is the configuration of svc's own.
func (o *nodeOptions) containerd(dataDir string, programs containerd.Programs) containerd.Config {
	c := containerd.Config{
		Dir:      containerdDir(dataDir),
		Programs: programs,
		Bridge:   o.bridge,
	}
	if o.podCIDR != "" {
		c.PodCIDRs = strings.Split(o.podCIDR, ",")
	}
	return c
}

// decideNode looks whether this machine can be a node, if it may. If --node
// leaves that to the machine, and it cannot be, notNode says why.
func (u *instance) decideNode() error {
	if u.node.mode == nodeNo {
		return nil
	}
	var err error
	if u.programs, err = u.node.programs(); err == nil {
		u.nodeName, err = u.node.nodeName()
	}
	if err == nil && u.node.endpoint == "" {
		// What cannot be read is told when the node starts.
		if ranges, readErr := u.node.containerd(u.dataDir, u.programs).Ranges(); readErr == nil {
			err = apart(ranges, &u.opts.Network)
		}
	}
	if err != nil && u.node.mode == nodeYes {
		return fmt.Errorf("--node=true: %w", err)
	}
	u.notNode = err
	return nil
}

// startNode starts the container runtime and the node agent. What keeps a
// machine from running pods is no reason to go without a control plane, unless
// --node asks for a node.
func (u *instance) startNode(ctx, serving context.Context) (string, error) {
	if u.notNode != nil {
		return "none: " + u.notNode.Error(), nil
	}
	noding, stop := context.WithCancel(serving)
	u.stopNoding = stop
	version, err := u.runNode(ctx, noding)
	if err == nil {
		return u.nodeName + ", " + version, nil
	}
	if u.runtime != nil && ctx.Err() == nil {
		// Nothing is told to run in it. Pods of before go on.
		err, u.runtime = errors.Join(err, u.runtime.Stop(ctx)), nil
	}
	u.stopNode()
	u.notNode = err
	if u.node.mode == nodeAuto && ctx.Err() == nil {
		return "none: " + oneLine(err), nil
	}
	return "", fmt.Errorf("--node=%s: %w", u.node.mode, err)
}

// runNode returns the name and the version of the container runtime when the
// agent has begun to run pods.
func (u *instance) runNode(ctx, noding context.Context) (string, error) {
	for _, problem := range prepareHost(ctx) {
		klog.FromContext(ctx).Info("The machine does not give svc up all that it is to have", "problem", problem)
	}
	endpoint, version := u.node.endpoint, u.node.endpoint
	if endpoint == "" {
		own, err := svclet.StartContainerd(ctx, u.node.containerd(u.dataDir, u.programs))
		if err != nil {
			return "", err
		}
		for _, warning := range own.Warnings {
			fmt.Fprintf(u.errOut, "svc up: %s\n", warning)
		}
		u.runtime, endpoint, version = own, own.Endpoint, "containerd "+own.Version
	}
	agent, err := svclet.New(noding, u.agentConfig(endpoint))
	if errors.Is(err, syscall.EADDRINUSE) {
		return "", fmt.Errorf("%w: choose other ports with --node-port and --node-healthz-port", err)
	}
	if err != nil {
		return "", err
	}
	u.noded = make(chan error, 1)
	u.noding.Go(func() {
		if err := agent.Run(noding); err != nil {
			u.noded <- err
		}
	})
	return version, nil
}

// prepareHost sets this process as that of an agent. One's own machine may go on
// to swap and keeps its kernel's settings, unlike one that is nothing but a node:
// that runs svclet.
func prepareHost(ctx context.Context) []error {
	defaults := config.Default()
	return host.Prepare(ctx, host.Options{
		ProtectKernelDefaults: true, OOMScoreAdj: *defaults.OOMScoreAdj, MaxOpenFiles: defaults.MaxOpenFiles,
	})
}

// agentConfig is the agent's. It serves on all addresses of the machine, as the
// API server comes to that of the node; who is nobody may do nothing there.
func (u *instance) agentConfig(endpoint string) svclet.Config {
	flags, c := config.DefaultFlags(), config.Default()
	flags.HostnameOverride = u.nodeName
	flags.RootDir = svcletDir(u.dataDir)
	flags.CertDir = filepath.Join(flags.RootDir, "pki")
	c.FailSwapOn, c.FailCgroupV1 = ptr.To(false), ptr.To(false)
	c.ContainerRuntimeEndpoint = endpoint
	c.CgroupRoot = cmp.Or(u.node.cgroupRoot, cgroupOf(u.dataDir))
	c.PodLogsDir = logsDir(u.dataDir)
	c.Port, c.ReadOnlyPort, c.HealthzPort = u.node.port, 0, ptr.To(u.node.healthzPort)
	c.TLSCertFile, c.TLSPrivateKeyFile = u.keys.Certificate("node-serving"), u.keys.Key("node-serving")
	c.Authentication.X509.ClientCAFile = u.keys.Certificate("ca")
	c.Authentication.Anonymous.Enabled = ptr.To(false)
	c.Authentication.Webhook.Enabled = ptr.To(true)
	c.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeWebhook
	return svclet.Config{
		Flags: flags, Configuration: c, Containerd: u.runtime,
		MakeCgroupRoot: u.node.cgroupRoot == "", LogLinksDir: logLinksDir(u.dataDir),
		API: &rest.Config{
			Host: serverURL(u.opts),
			// Files, as they are read again when they are renewed.
			TLSClientConfig: rest.TLSClientConfig{
				CAFile:   u.keys.Certificate("ca"),
				CertFile: u.keys.Certificate("node"),
				KeyFile:  u.keys.Key("node"),
			},
		},
		Version: release.Public(u.opts.Release, release.SVCVersion()).Info().GitVersion,
	}
}

// nodeStopTimeout is the agent's part of stopTimeout.
const nodeStopTimeout = 4 * time.Second

// stopNode stops the agent and lets go of the container runtime: pods go on.
func (u *instance) stopNode() {
	if u.stopNoding == nil {
		return
	}
	u.stopNoding()
	ended := make(chan struct{})
	go func() { u.noding.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(nodeStopTimeout):
		// Something of a pod hangs in the kernel. It must not keep etcd from
		// being stopped in order.
		fmt.Fprintf(u.errOut, "svc up: the node agent has not ended within %s, and is left behind\n", nodeStopTimeout)
		return
	}
	if u.runtime != nil {
		u.runtime.Close()
		u.runtime = nil
	}
	u.stopNoding = nil
}

// isNode tells whether pods run on this machine.
func (u *instance) isNode() bool { return u.noded != nil }

// dataDirArgument names the data directory to a command, if that has to be.
func (u *instance) dataDirArgument() string {
	if u.dataDir == defaultNodeDataDir {
		return ""
	}
	return " --data-dir=" + shellWord(u.dataDir)
}

// defaultNodeDataDir is root's: only root runs pods.
const defaultNodeDataDir = "/var/lib/svc"

// svcletDir and containerdDir are where the node keeps what it has; the agent's
// root directory is the first.
func svcletDir(dir string) string     { return filepath.Join(dir, "svclet") }
func containerdDir(dir string) string { return filepath.Join(dir, "containerd") }
func nodeFile(dir string) string      { return filepath.Join(dir, "node.svcconfig") }

// logsDir and logLinksDir are where the logs of pods are. An agent removes
// those of pods that it does not know, so that two must not share a directory.
// Collectors of logs look for them where the default data directory has them.
func logsDir(dir string) string {
	if dir == defaultNodeDataDir {
		return "/var/log/pods"
	}
	return filepath.Join(svcletDir(dir), "log", "pods")
}

func logLinksDir(dir string) string {
	if dir == defaultNodeDataDir {
		return "/var/log/containers"
	}
	return filepath.Join(svcletDir(dir), "log", "containers")
}

// cgroupOf is the cgroup in which those of the pods are. It is svc's own, for
// the same reason: a kubelet may run on this machine.
func cgroupOf(dir string) string {
	if dir == defaultNodeDataDir {
		return "/svc"
	}
	sum := sha256.Sum256([]byte(dir))
	return "/svc-" + hex.EncodeToString(sum[:4])
}

// dataDirFlag is the flag --data-dir of commands about a node that runs, or has
// run, there.
func dataDirFlag(flags *pflag.FlagSet) func() (string, error) {
	dir := flags.String("data-dir", "", "Data directory of the svc up whose node is meant. The default is "+defaultNodeDataDir+".")
	return func() (string, error) { return filepath.Abs(cmp.Or(*dir, defaultNodeDataDir)) }
}
