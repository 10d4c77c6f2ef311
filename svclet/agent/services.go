package agent

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"path/filepath"
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
	store *services.Store // nil without either
	dns   *dns.Server     // nil if the node has none
	// routed reports whether the proxy routes the service of the DNS server to it in the
	// IP family of an address; nil if in none.
	routed func(netip.Addr) bool
	// forbidden reports whether the node may not read services, so that the copy never
	// becomes complete.
	forbidden func(context.Context) bool
	// zone returns the zone of the node; it is set before the tasks run.
	zone  func() string
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
// machine that cannot have one of them, the agent works without. An agent that is to have no
// proxy removes the rules of one that had: nothing would update them. Its tasks, or
// abandon, close the port of the DNS server.
func newServices(ctx context.Context, base common, conn connections) *nodeServices {
	n := &nodeServices{clock: base.Clock}
	if conn.clients == nil || !base.ServiceProxy {
		n.tasks.before = append(n.tasks.before, base.remove("service rules", removeServiceRules))
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
		server, err := dns.Listen(ctx, dns.Options{
			Domain: clusterDomain(base), Services: n.store, ResolvConf: ptr.Deref(base.Configuration.ResolverConfig, ""),
			Link: link, PortFile: filepath.Join(base.RootDir, "dns-port"), Clock: base.Clock,
		})
		if err != nil {
			klog.FromContext(ctx).Error(err, "Names of services have no DNS server on this node")
			n.dnsProblem = always(err)
		} else {
			n.dns, n.dnsProblem = server, server.Problem
			n.tasks.parts = append(n.tasks.parts, server.Run)
		}
	}
	switch {
	case !base.ServiceProxy:
	case base.networkDenied:
		n.proxyProblem = always(errors.New("the capability CAP_NET_ADMIN is missing"))
	default:
		parts := serviceProxy(ctx, base, n, conn.events.Any())
		if len(parts) > 0 && n.dns != nil {
			n.routed = n.dns.Serves
		}
		n.tasks.parts = append(n.tasks.parts, parts...)
	}
	return n
}

// abandon closes the port of a DNS server that does not run.
func (n *nodeServices) abandon() error {
	if n.dns == nil {
		return nil
	}
	return n.dns.Close()
}

// clusterDomain returns the domain of the cluster, empty if it is not known.
func clusterDomain(base common) string {
	if base.DNS {
		return cmp.Or(base.Configuration.ClusterDomain, defaultClusterDomain)
	}
	return base.Configuration.ClusterDomain
}

// clusterDNS returns what finds the name servers of pods that use those of the cluster;
// nil if the configuration names them.
func (n *nodeServices) clusterDNS(base common) func(context.Context) ([]string, error) {
	if !base.DNS || n.store == nil || len(base.Configuration.ClusterDNS) > 0 {
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
		if string(slice.AddressType) != string(family) {
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
