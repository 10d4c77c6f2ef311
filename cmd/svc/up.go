package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"

	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/controllers"
	"svc.dev/svc/controllers/namespace"
	"svc.dev/svc/controllers/serving"
	"svc.dev/svc/svclet/containerd"
)

func newUp() *cobra.Command {
	opts, loops, node := options.New(), controllers.NewOptions(), newNodeOptions()
	opts.Agents.Metrics = true  // a cluster from one hand has kubectl top from the start
	opts.AllowPrivileged = true // and takes network and storage plugins
	logging := logsapi.NewLoggingConfiguration()
	var dataDir string
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run the whole system on this machine",
		Long: `Run the whole system on this machine: an etcd of its own, unless --etcd-servers
names one, the API server and the controllers, and, where --node=auto finds that
it can be, the machine itself as a node that runs pods. Keys, certificates and
data are made at the first start and used again at every later one.

The flags of "svc apiserver" and the controllers' flags may be given, too. Only
warnings and errors are logged, unless -v or --logging-format is given.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			u, err := newInstance(cmd, opts, loops, node, dataDir)
			if err != nil {
				return err
			}
			// Few want a log between themselves and the report; those who do ask.
			var out io.Writer = cmd.ErrOrStderr()
			if !cmd.Flags().Changed("v") && !cmd.Flags().Changed("logging-format") {
				out = warnings{out, &u.muted}
			}
			if err := startLogs(cmd, logging, out); err != nil {
				return err
			}
			defer logs.FlushLogs()
			return u.run(cmd.Context())
		},
	}
	var sets cliflag.NamedFlagSets
	sets.FlagSet("up").StringVar(&dataDir, "data-dir", "",
		"Directory of keys, certificates and data. The default is /var/lib/svc for root and, for other users, svc in the XDG data directory (~/.local/share).")
	node.addFlags(sets.FlagSet("node"))
	theirs := opts.Flags()
	for _, name := range theirs.Order {
		sets.FlagSet(name).AddFlagSet(theirs.FlagSets[name])
	}
	loops.AddFlags(&sets)
	addLogFlags(&sets, logging)
	addFlags(cmd, sets)
	for _, flag := range ownFiles {
		cmd.Flags().Lookup(flag).Hidden = true
	}
	return cmd
}

// ownFiles are the flags whose files svc up makes.
var ownFiles = []string{"tls-cert-file", "tls-private-key-file", "cert-dir", "client-ca-file"}

// tokenIssuer is where a cluster's members reach the API server, so that they
// can read there by which keys it signs service account tokens.
const tokenIssuer = "https://kubernetes.default.svc.cluster.local"

// newInstance checks the command line.
func newInstance(cmd *cobra.Command, opts *options.Options, loops *controllers.Options, node *nodeOptions, dataDir string) (*instance, error) {
	var err error
	if dataDir == "" {
		if cmd.Flags().Changed("data-dir") {
			return nil, usageError{errors.New("--data-dir: the name is empty; name a directory, or leave the flag out"), cmd}
		}
		dataDir, err = currentUser().dataDir()
	} else {
		dataDir, err = filepath.Abs(dataDir)
	}
	if err != nil {
		return nil, err
	}
	u := &instance{
		dataDir:      dataDir,
		opts:         opts,
		loops:        loops,
		node:         node,
		embeddedEtcd: !cmd.Flags().Changed("etcd-servers"),
		program:      os.Args[0],
		out:          cmd.OutOrStdout(),
		errOut:       cmd.ErrOrStderr(),
	}
	if u.embeddedEtcd {
		for _, flag := range []string{"etcd-cafile", "etcd-certfile", "etcd-keyfile"} {
			if cmd.Flags().Changed(flag) {
				return nil, usageError{fmt.Errorf("--%s needs --etcd-servers: without it svc up runs an etcd of its own, which uses no TLS", flag), cmd}
			}
		}
	}
	for _, flag := range ownFiles {
		if cmd.Flags().Changed(flag) {
			return nil, usageError{fmt.Errorf("--%s: svc up makes its own keys and certificates, in --data-dir; use 'svc apiserver' for others", flag), cmd}
		}
	}
	if u.embeddedEtcd {
		opts.Etcd.Servers = []string{"unix://" + etcdDir(dataDir)} // until it runs
	}
	if len(opts.ServiceAccounts.Issuers) == 0 {
		opts.ServiceAccounts.Issuers = []string{tokenIssuer}
	}
	if !cmd.Flags().Changed("svclet-preferred-address-types") {
		// The names of machines that join need not be known to this one.
		opts.Agents.AddressTypes = []string{
			string(corev1.NodeInternalIP), string(corev1.NodeExternalIP),
			string(corev1.NodeInternalDNS), string(corev1.NodeExternalDNS), string(corev1.NodeHostName),
		}
	}
	opts.Metrics = serving.Metrics() // the controllers have no port of their own
	// Both have this flag.
	if err := loops.Set("service-cluster-ip-range", opts.Network.ServiceClusterIPRange); err != nil {
		return nil, err
	}
	if u.embeddedEtcd && !cmd.Flags().Changed(namespace.GraceFlag) {
		if err := loops.Set(namespace.GraceFlag, "1s"); err != nil {
			return nil, err
		}
	}
	errs := slices.Concat(opts.Validate(), loops.Validate(), node.validate())
	if err := apart(node.containerd(dataDir, containerd.Programs{}).PodCIDRs, &opts.Network); err != nil {
		errs = append(errs, err)
	}
	if err := joined(cmd, errs); err != nil {
		return nil, err
	}
	if err := u.decideNode(); err != nil {
		return nil, err
	}
	return u, grantComponents(opts)
}

// serverURL is the URL at which the machine itself reaches the server.
func serverURL(opts *options.Options) string {
	host := opts.SecureServing.BindAddress
	switch {
	case host.Equal(net.IPv4zero):
		host = net.IPv4(127, 0, 0, 1)
	case host.Equal(net.IPv6unspecified):
		host = net.IPv6loopback
	}
	return "https://" + net.JoinHostPort(host.String(), fmt.Sprint(opts.SecureServing.BindPort))
}
