package agent

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/dns"
	"svc.dev/svc/svclet/node"
	"svc.dev/svc/svclet/services"
)

// defaultClusterDomain is the domain of a cluster whose names the agent answers.
const defaultClusterDomain = "cluster.local"

// nodeServices are the node's copy of services, and what works with it: the service proxy
// and the DNS server.
type nodeServices struct {
	store *services.Store            // nil without either
	dns   atomic.Pointer[dns.Server] // nil while the node has none
	// listening is called, if it is not nil, when the node gets its server after its start.
	listening func()
	// routed reports whether the proxy routes the service of the DNS server to it in the
	// IP family of an address; nil if in none.
	routed func(netip.Addr) bool
	// forbidden reports whether the node may not read services, so that the copy never
	// becomes complete.
	forbidden func(context.Context) bool
	// node returns the node's object; it is set before the tasks run.
	node  func() *corev1.Node
	clock clock.WithTicker
	tasks tasks
	// proxyProblem and dnsProblem return why the node has no proxy or no server, or why what
	// it has fails; nil functions and errors mean that nothing is wrong.
	proxyProblem, dnsProblem func() error
}

// lacks returns what the node lacks of services.
func (n *nodeServices) lacks() []node.Lack {
	var all []node.Lack
	for _, of := range []struct {
		kind    corev1.NodeConditionType
		reason  string
		problem func() error
	}{
		{node.ServiceProxyUnavailable, "ServiceProxyFailed", n.proxyProblem},
		{node.ServiceDNSUnavailable, "ServiceDNSFailed", n.dnsProblem},
	} {
		if of.problem == nil {
			continue
		}
		if err := of.problem(); err != nil {
			all = append(all, node.Lack{Kind: of.kind, Reason: of.reason, Message: err.Error()})
		}
	}
	return all
}

// always returns a function that returns the error.
func always(err error) func() error { return func() error { return err } }

// newServices makes the node's copy of services, the proxy and the DNS server. On a
// machine that cannot have one of them, the agent works without. An agent without a proxy
// removes the rules of one that had it: nothing would update them. Its tasks, or abandon,
// close the port of the DNS server.
func newServices(ctx context.Context, base common, conn connections) *nodeServices {
	n := &nodeServices{clock: base.Clock}
	remove := base.remove("service rules", removeServiceRules(base.parameters))
	if conn.clients == nil || !base.ServiceProxy {
		n.tasks.before = append(n.tasks.before, remove)
	}
	if conn.clients == nil || !base.ServiceProxy && !base.DNS {
		return n
	}
	n.store = services.New()
	n.forbidden = func(ctx context.Context) bool {
		return services.Forbidden(ctx, conn.clients.Heartbeats, conn.clients.Discovery)
	}
	n.tasks.parts = append(n.tasks.parts, func(ctx context.Context) { n.store.Run(ctx, conn.clients.Heartbeats, conn.clients.Discovery) })
	if base.DNS {
		link := dns.LinkName("")
		if base.Containerd != nil {
			link = dns.LinkName(base.Containerd.Bridge())
		}
		n.serveNames(ctx, dns.Listen, dns.Options{
			Domain: clusterDomain(base), Services: n.store, ResolvConf: ptr.Deref(base.Configuration.ResolverConfig, ""),
			Link: link, PortFile: filepath.Join(base.RootDir, "dns-port"), Clock: base.Clock,
		})
	}
	switch {
	case !base.ServiceProxy:
	case base.networkDenied:
		n.proxyProblem = always(errors.New("the capability CAP_NET_ADMIN is missing"))
	default:
		parts := serviceProxy(ctx, base, n, conn.events.Any())
		if len(parts) == 0 {
			n.tasks.before = append(n.tasks.before, remove)
		} else if base.DNS {
			n.routed = func(family netip.Addr) bool {
				server := n.dns.Load()
				return server != nil && server.Serves(family)
			}
		}
		n.tasks.parts = append(n.tasks.parts, parts...)
	}
	return n
}

// The delays between attempts to open the port of the DNS server double up to the maximum.
const (
	minListenDelay = time.Second
	maxListenDelay = 30 * time.Second
)

// serveNames opens the port of the node's DNS server, and adds the task that runs it. While
// the port cannot be opened, the task tries it again.
func (n *nodeServices) serveNames(ctx context.Context, listen func(context.Context, dns.Options) (*dns.Server, error), o dns.Options) {
	server, err := listen(ctx, o)
	var failure atomic.Pointer[error] // of the last attempt
	if err == nil {
		n.dns.Store(server)
	} else {
		failure.Store(&err)
		klog.FromContext(ctx).Error(err, "Failed to start the DNS server for names of services, will retry")
	}
	n.dnsProblem = func() error {
		if server := n.dns.Load(); server != nil {
			return server.Problem()
		}
		return *failure.Load()
	}
	n.tasks.parts = append(n.tasks.parts, func(ctx context.Context) {
		server := n.dns.Load()
		for delay := minListenDelay; server == nil; delay = min(2*delay, maxListenDelay) {
			select {
			case <-ctx.Done():
				return
			case <-n.clock.After(delay):
			}
			opened, err := listen(ctx, o)
			if err != nil {
				failure.Store(&err)
				klog.FromContext(ctx).V(2).Info("Failed to start the DNS server for names of services again", "err", err)
				continue
			}
			server = opened
			n.dns.Store(server)
			klog.FromContext(ctx).Info("Started the DNS server for names of services", "address", server.Addresses()[0])
			if n.listening != nil {
				n.listening()
			}
		}
		server.Run(ctx)
	})
}

// abandon closes the port of a DNS server that does not run.
func (n *nodeServices) abandon() error {
	if server := n.dns.Load(); server != nil {
		return server.Close()
	}
	return nil
}

// clusterDomain returns the domain of the cluster, empty if it is not known. It has a default
// where pods have the name servers of clusterDNS.
func clusterDomain(base common) string {
	if base.DNS || base.ServiceProxy {
		return cmp.Or(base.Configuration.ClusterDomain, defaultClusterDomain)
	}
	return base.Configuration.ClusterDomain
}

// clusterDNS returns what finds the name servers of pods that use those of the cluster;
// nil if the configuration names them, or the agent reads no services. Without --dns they are
// the user's.
func (n *nodeServices) clusterDNS(base common) func(context.Context) ([]string, error) {
	if n.store == nil || len(base.Configuration.ClusterDNS) > 0 {
		return nil
	}
	return func(ctx context.Context) ([]string, error) {
		if err := n.await(ctx); err != nil {
			if n.forbidden(ctx) {
				return nil, nil // pods have the node's resolvers, and a warning
			}
			return nil, err
		}
		if address := nameServer(n.store.Get(dns.ServiceKey()), n.routed); address != "" {
			return []string{address}, nil
		}
		return nil, nil
	}
}

// syncWait bounds how long an attempt to start a pod waits for the copy of services.
const syncWait = time.Second

// await waits until the copy of services is complete.
func (n *nodeServices) await(ctx context.Context) error {
	select {
	case <-n.store.Complete():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-n.clock.After(syncWait):
		return errors.New("services have not yet been read at least once, the cluster's name servers are unknown")
	}
}

// nameServer returns the address of the service of name servers that answers: the first of
// a family in which it has a ready endpoint or in which the proxy routes it to the node's
// own server. It is empty if none does.
func nameServer(object services.Object, routed func(netip.Addr) bool) string {
	if object.Service == nil {
		return ""
	}
	for _, text := range object.Service.Spec.ClusterIPs {
		address, err := netip.ParseAddr(text)
		if err != nil {
			continue // None
		}
		family := corev1.IPv4Protocol
		if address.Is6() {
			family = corev1.IPv6Protocol
		}
		if routed != nil && routed(address) || hasReady(object, family) {
			return text
		}
	}
	return ""
}

// hasReady reports whether a service has a ready endpoint of an IP family.
func hasReady(object services.Object, family corev1.IPFamily) bool {
	for _, slice := range object.Slices {
		if string(slice.AddressType) != string(family) || services.Headless(slice) {
			continue
		}
		for _, e := range slice.Endpoints {
			if ptr.Deref(e.Conditions.Ready, true) {
				return true
			}
		}
	}
	return false
}
