package agent

import (
	"context"
	"net/netip"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/dns"
	"svc.dev/svc/svclet/nft"
	"svc.dev/svc/svclet/nodeconfig"
	"svc.dev/svc/svclet/proxy"
	"svc.dev/svc/svclet/proxy/ruleset"
	"svc.dev/svc/svclet/servicehealth"
	"svc.dev/svc/svclet/services"
)

// serviceProxy makes the proxy of services and the servers of their health check node
// ports, and returns what runs them. On a machine that cannot have a proxy it logs why,
// and returns nothing.
func serviceProxy(ctx context.Context, base common, n *nodeServices, recorder record.EventRecorder) []func(context.Context) {
	logger := klog.FromContext(ctx)
	o := proxy.Options{
		Services: n.store, Node: base.name, Clock: base.Clock, Sysctl: base.parameters.Set,
		Zone:      func() string { return n.node().Labels[corev1.LabelTopologyZone] },
		Addresses: func() []string { return nodeconfig.HostIPs(n.node()) },
		PodRanges: func() []string {
			return strings.FieldsFunc(base.Configuration.PodCIDR, func(r rune) bool { return r == ',' })
		},
	}
	api := loopback(base.API.Host)
	o.Local = func() map[services.Key]ruleset.Fallback {
		local := map[services.Key]ruleset.Fallback{}
		if api.IsValid() {
			local[services.Key{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}] = ruleset.Fallback{Addresses: []netip.AddrPort{api}}
		}
		if server := n.dns.Load(); server != nil {
			local[dns.ServiceKey()] = ruleset.Fallback{Addresses: server.Addresses(), Port: dns.ServicePort}
		}
		return local
	}
	if runtime := base.Containerd; runtime != nil {
		o.Bridge = runtime.Bridge()
		o.PodRanges = func() []string {
			ranges, err := runtime.PodRanges()
			if err != nil {
				logger.Error(err, "Failed to read the pods' address ranges")
			}
			return ranges
		}
	}
	p, err := proxy.New(o)
	if err != nil {
		logger.Error(err, "Services have no proxy on this node")
		n.proxyProblem = always(err)
		return nil
	}
	n.proxyProblem, n.listening = p.Problem, p.Signal
	health := servicehealth.New(servicehealth.Options{
		Services: n.store, Node: base.name, Proxied: p.Written, Clock: base.Clock,
		Warn: func(service *corev1.Service, reason, message string) {
			recorder.Event(service, corev1.EventTypeWarning, reason, message)
		},
	})
	return []func(context.Context){p.Run, health.Run}
}

// removeServiceRules returns what removes the rules of a proxy with a bridge. Before that it restores
// the parameter that is safe only with the rules; if it cannot, the rules stay.
func removeServiceRules(parameters *nft.Parameters) func(bridge string) error {
	return func(bridge string) error {
		if err := parameters.RestoreOne(proxy.LoopbackRoutes); err != nil {
			return err
		}
		return proxy.Remove(bridge)
	}
}

// loopback returns the address of a server whose URL has a loopback address, or an
// invalid one.
func loopback(server string) netip.AddrPort {
	u, err := url.Parse(server)
	if err != nil {
		return netip.AddrPort{}
	}
	address, err := netip.ParseAddrPort(u.Host)
	if err != nil || !address.Addr().IsLoopback() {
		return netip.AddrPort{}
	}
	return address
}
