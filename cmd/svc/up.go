package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/grpclog"
	corev1 "k8s.io/api/core/v1"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/apiserver/authorization"
	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/controllers"
	"svc.dev/svc/controllers/bootstrapsigner"
	"svc.dev/svc/controllers/healthserver"
	"svc.dev/svc/controllers/hostloadbalancer"
	"svc.dev/svc/controllers/namespace"
	"svc.dev/svc/controllers/nodeipam"
	"svc.dev/svc/controllers/tokencleaner"
	"svc.dev/svc/internal/cluster"
	"svc.dev/svc/internal/datadir"
	"svc.dev/svc/internal/footprint"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/podnetwork/plan"
)

func newUp() *cobra.Command {
	up := &up{server: options.New(), controllers: controllers.NewOptions(), node: cluster.NewNodeOptions()}
	up.server.Agents.Metrics = true  // kubectl top works without further installation
	up.server.AllowPrivileged = true // network and storage plugins need it
	up.server.Authentication.BootstrapTokens = true
	up.controllers.Controllers = append(up.controllers.Controllers, bootstrapsigner.New().Name, tokencleaner.New().Name, // nodes join by tokens
		hostloadbalancer.New().Name)
	up.server.Authorization.Modes = []string{authorization.Node, authorization.RBAC}
	logging := logsapi.NewLoggingConfiguration()
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
			ready := footprint.Start(cmd.Context())
			var muted atomic.Bool
			up.controllers.Included, up.controllers.Gate = includedAt(up.server.Release), gateAt(up.server.Release)
			c, err := up.cluster(cmd, func() { muted.Store(true) })
			if err != nil {
				return err
			}
			var out io.Writer = cmd.ErrOrStderr()
			if !cmd.Flags().Changed("v") && !cmd.Flags().Changed("logging-format") {
				out = warnings{out, &muted}
				// gRPC warns of each connection that fails, as do those that open it: probes and drivers.
				grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, klog.NewStandardLogger("ERROR").Writer()))
			}
			if err := startLogs(cmd, logging, out); err != nil {
				return err
			}
			defer logs.FlushLogs()
			warnGates(cmd, func(name string) bool { return gates.Acts(name) || config.ActsOn(name) || actsOnControllers(name) })
			return c.Run(cmd.Context(), func(started cluster.Report) {
				ready()
				report{Report: started, dir: c.Dir, release: c.Server.Release, program: os.Args[0]}.print(cmd.OutOrStdout())
			})
		},
	}
	var sets cliflag.NamedFlagSets
	sets.FlagSet("up").StringVar(&up.dataDir, "data-dir", "",
		"Directory of keys, certificates and data. The default is /var/lib/svc for root and, for other users, svc in the XDG data directory (~/.local/share).")
	up.node.AddFlags(sets.FlagSet("node"))
	serverSets := up.server.Flags()
	for _, name := range serverSets.Order {
		if name == options.AggregationFlags {
			continue // svc up is a cluster of its own
		}
		sets.FlagSet(name).AddFlagSet(serverSets.FlagSets[name])
	}
	up.controllers.AddFlags(&sets)
	addLogFlags(&sets, logging)
	addFlags(cmd, sets)
	for _, flag := range ownFiles {
		cmd.Flags().Lookup(flag).Hidden = true
	}
	return cmd
}

// ownFiles are the flags whose files svc up creates itself.
var ownFiles = []string{"tls-cert-file", "tls-private-key-file", "cert-dir", "client-ca-file"}

// up holds the values of the flags of svc up.
type up struct {
	server      *options.Options
	controllers *controllers.Options
	node        *cluster.NodeOptions
	dataDir     string
}

// cluster checks the flags and makes the cluster that they describe.
func (u *up) cluster(cmd *cobra.Command, stopping func()) (*cluster.Cluster, error) {
	dir, err := u.dir(cmd)
	if err != nil {
		return nil, err
	}
	embeddedEtcd := !cmd.Flags().Changed("etcd-servers")
	if err := checkExclusive(cmd, embeddedEtcd); err != nil {
		return nil, err
	}
	if err := u.setDefaults(cmd, embeddedEtcd); err != nil {
		return nil, err
	}
	c := cluster.Config{
		Dir: dir, Server: u.server, Controllers: u.controllers, Node: u.node, EmbeddedEtcd: embeddedEtcd,
		Messages: cmd.ErrOrStderr(), Program: cmd.CommandPath(), Stopping: stopping, Clock: clock.RealClock{},
	}
	if embeddedEtcd {
		u.server.Etcd.Servers = []string{"unix://" + dir.Etcd()} // valid until the member says where it serves
	}
	// The controllers have this flag from the server, whose checks are the stricter ones.
	controllers := slices.DeleteFunc(u.controllers.Validate(), func(err error) bool {
		return strings.HasPrefix(err.Error(), "--"+serviceRangeFlag+": ")
	})
	errs := slices.Concat(u.server.Validate(), controllers, u.node.Validate(&u.server.Network))
	if err := joined(cmd, errs); err != nil {
		return nil, err
	}
	return cluster.New(c)
}

// dir returns the data directory that the flags name.
func (u *up) dir(cmd *cobra.Command) (datadir.Dir, error) {
	if u.dataDir != "" {
		absolute, err := filepath.Abs(u.dataDir)
		return datadir.Dir(absolute), err
	}
	if cmd.Flags().Changed("data-dir") {
		return "", usageError{errors.New("--data-dir: the name is empty; name a directory, or leave the flag out"), cmd}
	}
	return datadir.CurrentUser().DataDir()
}

// clusterCIDR is the default range of the addresses of pods. The first node gets the
// default range of a single machine.
const clusterCIDR = "10.88.0.0/16"

// allocatePodCIDRs makes nodes get pod CIDRs, so that machines can join, unless the user
// has given the addresses of this machine's pods only. Without pod CIDRs the pods of
// several machines cannot reach each other.
func (u *up) allocatePodCIDRs(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	allocate, err := cmd.Flags().GetBool(nodeipam.AllocateFlag)
	if err != nil {
		return err
	}
	if !given(nodeipam.AllocateFlag) {
		allocate = given(nodeipam.ClusterFlag) || !given(cluster.PodCIDRFlag)
		if err := u.controllers.Set(nodeipam.AllocateFlag, strconv.FormatBool(allocate)); err != nil {
			return err
		}
	}
	if !allocate {
		if !given(cluster.PodNetworkFlag) {
			u.node.PodNetwork = plan.None
		}
		return nil
	}
	if !given(nodeipam.ClusterFlag) {
		if err := u.controllers.Set(nodeipam.ClusterFlag, clusterCIDR); err != nil {
			return err
		}
	}
	u.node.ClusterCIDR, err = cmd.Flags().GetString(nodeipam.ClusterFlag)
	return err
}

// leaveToCloud leaves what a cloud controller manager does to it: the node's addresses and,
// unless the user has chosen the controllers, load balancers.
func (u *up) leaveToCloud(chosen bool) {
	u.node.ExternalCloud = true
	if !chosen {
		u.controllers.Controllers = slices.DeleteFunc(u.controllers.Controllers, func(name string) bool { return name == hostloadbalancer.New().Name })
	}
}

// serviceRangeFlag is a flag of the API server and of the controllers.
const serviceRangeFlag = "service-cluster-ip-range"

// checkExclusive refuses flags that contradict what svc up does itself.
func checkExclusive(cmd *cobra.Command, embeddedEtcd bool) error {
	if embeddedEtcd && !cmd.Flags().Changed("etcd-servers-overrides") {
		for _, flag := range []string{"etcd-cafile", "etcd-certfile", "etcd-keyfile"} {
			if cmd.Flags().Changed(flag) {
				return usageError{fmt.Errorf("--%s needs --etcd-servers or --etcd-servers-overrides: without them svc up runs an etcd of its own, which uses no TLS", flag), cmd}
			}
		}
	}
	for _, flag := range ownFiles {
		if cmd.Flags().Changed(flag) {
			return usageError{fmt.Errorf("--%s: svc up makes its own keys and certificates, in --data-dir; use 'svc apiserver' for others", flag), cmd}
		}
	}
	return nil
}

// setDefaults sets options that differ from those of the components by
// themselves, unless the user has set them.
func (u *up) setDefaults(cmd *cobra.Command, embeddedEtcd bool) error {
	if cmd.Flags().Changed("authorization-config") && !cmd.Flags().Changed("authorization-mode") {
		u.server.Authorization.Modes = nil // the file names them
	}
	if !cmd.Flags().Changed("svclet-preferred-address-types") {
		// This machine may be unable to resolve the names of nodes that join.
		u.server.Agents.AddressTypes = []string{
			string(corev1.NodeInternalIP), string(corev1.NodeExternalIP),
			string(corev1.NodeInternalDNS), string(corev1.NodeExternalDNS), string(corev1.NodeHostName),
		}
	}
	u.server.Metrics = healthserver.Metrics() // the controllers have no port of their own
	if err := setMetrics(cmd.Context(), u.server); err != nil {
		return err
	}
	// The API server and the controllers both have this flag.
	if err := u.controllers.Set(serviceRangeFlag, u.server.Network.ServiceClusterIPRange); err != nil {
		return err
	}
	if err := u.allocatePodCIDRs(cmd); err != nil {
		return err
	}
	if u.controllers.CloudProvider == controllers.CloudExternal {
		u.leaveToCloud(cmd.Flags().Changed("controllers"))
	}
	if embeddedEtcd && !cmd.Flags().Changed(namespace.GraceFlag) {
		return u.controllers.Set(namespace.GraceFlag, "500ms")
	}
	return nil
}
