// Package cluster owns the life of a whole cluster on one machine, which is what
// "svc up" runs: keys and certificates, etcd, an API server, the controllers and
// a node, started, watched and stopped as components.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/apiserver/authorization"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/pki"
	"svc.dev/svc/controllers"
	"svc.dev/svc/internal/component"
	"svc.dev/svc/internal/datadir"
	"svc.dev/svc/internal/jointoken"
	"svc.dev/svc/svclet/host"
)

// stopTimeout bounds the time from the signal to the end of the process, after the time in
// which the API server goes on answering (--shutdown-delay-duration).
const stopTimeout = 10 * time.Second

// Config is what a cluster is made with.
type Config struct {
	// Dir keeps keys, certificates and data.
	Dir datadir.Dir
	// Server are the options of the API server. New completes them; the files of
	// its certificates are those of the cluster.
	Server      *options.Options
	Controllers *controllers.Options
	Node        *NodeOptions
	// EmbeddedEtcd runs an etcd in this process, on Dir. Otherwise Server names
	// the etcd servers.
	EmbeddedEtcd bool
	// Messages is where warnings and the progress of a start are written, a line
	// each, which begins with Program.
	Messages io.Writer
	Program  string
	// Stopping, if not nil, is called when the cluster begins to stop.
	Stopping func()
	Clock    clock.WithTicker
}

// Cluster is a cluster on this machine.
type Cluster struct {
	Config
	etcd *embeddedEtcd // nil with an external etcd
	node *node         // nil if the options do not allow one
}

// Report is what a start has done.
type Report struct {
	Components []component.Started
	// Took is the time until all were ready.
	Took time.Duration
	// Node reports whether pods run on this machine.
	Node bool
	// ServiceProxy reports whether this machine routes the addresses of services, and MissingRoutes
	// are routes, as arguments of ip route add, that it needs for that itself.
	ServiceProxy  bool
	MissingRoutes []string
}

// New completes the options and decides whether this machine becomes a node. It
// starts nothing. Errors name the flag that mends them.
func New(c Config) (*Cluster, error) {
	if len(c.Server.ServiceAccounts.Issuers) == 0 {
		c.Server.ServiceAccounts.Issuers = []string{tokenIssuer}
	}
	c.Server.Authorization.Own = append(c.Server.Authorization.Own,
		authorization.Grant{User: pki.UpClient, Rules: append(dnsRules(), podAccessRules()...)})
	if err := GrantComponents(c.Server); err != nil {
		return nil, err
	}
	c.Server.Authorization.Components = append(c.Server.Authorization.Components, authorization.Joining(jointoken.DefaultGroup)...)
	cluster := &Cluster{Config: c}
	if c.EmbeddedEtcd {
		cluster.etcd = &embeddedEtcd{dir: c.Dir}
	}
	if c.Node.Mode == NodeNever {
		return cluster, nil
	}
	gates, err := nodeGates(c.Server.Release)
	if err != nil {
		return nil, err
	}
	cluster.node = &node{options: c.Node, gates: gates, dir: c.Dir, server: c.Server, messages: c.Messages, program: c.Program, clock: c.Clock, shared: !c.EmbeddedEtcd}
	return cluster, cluster.node.prepare()
}

// Run starts the components, calls started, and stops them when ctx ends or one
// of them fails. It returns nil if ctx ended.
func (c *Cluster) Run(ctx context.Context, started func(Report)) error {
	if !c.Dir.InUse() { // by a cluster with the same port, probably
		if err := CheckPort(c.Server.SecureServing); err != nil {
			return err
		}
	}
	lock, err := c.Dir.Open()
	if err != nil {
		return err
	}
	defer lock.Close()
	if c.etcd != nil {
		if err := c.etcd.check(); err != nil {
			return err
		}
	}
	group := c.group()
	began := c.Clock.Now()
	components, err := group.Start(ctx)
	withdraw := func() {}
	if err == nil {
		withdraw = c.publish(ctx)
		report := Report{Components: components, Took: c.Clock.Since(began), Node: c.node != nil && c.node.running()}
		if ranges, invalid := c.Server.Network.ServiceCIDRs(); report.Node && invalid == nil {
			may, err := host.MayAdministerNetwork()
			report.ServiceProxy = c.Node.proxy && (may || err != nil)
			report.MissingRoutes = c.Node.missingRoutes(ctx, ranges, new(net.Dialer).DialContext)
		}
		started(report)
		err = group.Wait(ctx)
	}
	if c.Stopping != nil {
		c.Stopping()
	}
	if ctx.Err() != nil {
		err = nil // the user has asked for the end, whatever failed because of it
	}
	withdraw()
	return errors.Join(err, group.Stop())
}

// group returns the components of the cluster.
func (c *Cluster) group() *component.Group {
	return &component.Group{
		Components: c.components(), Program: c.Program, Progress: c.Messages, StopTimeout: stopTimeout + c.Server.Requests.ShutdownDelay, Clock: c.Clock,
	}
}

// components are those of the cluster, in the order of their starts.
func (c *Cluster) components() []component.Component {
	keys := &certificates{cluster: c}
	components := []component.Component{keys}
	server := &apiServer{options: c.Server, keys: keys, etcd: c.etcd}
	if c.etcd != nil {
		components = append(components, c.etcd)
	} else {
		components = append(components, externalEtcd{serversFlag, c.Server.Etcd.Servers, c.Clock})
	}
	components = append(components, overriddenEtcds(c.Server.Etcd.Overrides, c.Clock)...)
	components = append(components, server)
	if c.Node.dns {
		components = append(components, &dnsService{server: c.Server, keys: keys, messages: c.Messages, program: c.Program})
	}
	components = append(components, &controllerManager{
		options: c.Controllers, server: c.Server, keys: keys,
		// No other svc up uses an embedded etcd, so the next one need not wait
		// until the lease of one that was killed expires.
		sharedLease: !c.EmbeddedEtcd,
	})
	if c.node != nil {
		c.node.keys = keys
		c.node.access = &podAccess{server: server, keys: keys, clock: c.Clock, shared: c.node.shared, others: c.Node.ClusterCIDR}
		server.forPods = c.node.unable == nil && c.Node.endpoint == ""
		components = append(components, c.node)
	}
	return components
}

// publish makes this cluster the one that svc kubectl uses, until withdraw is
// called. If it fails, the user has to set KUBECONFIG.
func (c *Cluster) publish(ctx context.Context) (withdraw func()) {
	withdraw, err := datadir.CurrentUser().Publish(c.Dir.AdminFile())
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to publish the kubeconfig, set KUBECONFIG for svc kubectl", "kubeconfig", c.Dir.AdminFile())
		return func() {}
	}
	return withdraw
}

// tokenIssuer is where a cluster's members reach the API server, so that they
// can read there by which keys it signs service account tokens.
const tokenIssuer = "https://kubernetes.default.svc.cluster.local"

// serverURL is the URL at which this machine reaches the API server.
func serverURL(o *options.Options) string {
	host := o.SecureServing.BindAddress
	switch {
	case host.Equal(net.IPv4zero):
		host = net.IPv4(127, 0, 0, 1)
	case host.Equal(net.IPv6unspecified):
		host = net.IPv6loopback
	}
	return "https://" + net.JoinHostPort(host.String(), fmt.Sprint(o.SecureServing.BindPort))
}
