package agent

import (
	"context"
	"net/netip"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/dns"
	"svc.dev/svc/svclet/proxy"
	"svc.dev/svc/svclet/proxy/ruleset"
	"svc.dev/svc/svclet/services"
)

// serviceProxy makes the proxy of services, and returns what runs it. On a machine that
// cannot have one it logs why, and returns nil.
func serviceProxy(ctx context.Context, base common, n *nodeServices) func(context.Context) {
	logger := klog.FromContext(ctx)
	o := proxy.Options{
		Services: n.store, Local: map[services.Key]ruleset.Fallback{}, Node: base.name, Clock: base.Clock,
		PodRanges: func() []string {
			return strings.FieldsFunc(base.Configuration.PodCIDR, func(r rune) bool { return r == ',' })
		},
	}
	if server := loopback(base.API.Host); server.IsValid() {
		o.Local[services.Key{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}] = ruleset.Fallback{Address: server}
	}
	if n.dns != nil {
		o.Local[dns.ServiceKey()] = ruleset.Fallback{Address: n.dns.Address(), Port: dns.ServicePort}
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
		return nil
	}
	return p.Run
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
