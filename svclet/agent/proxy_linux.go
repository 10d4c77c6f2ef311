package agent

import (
	"context"
	"net/netip"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/proxy"
	"svc.dev/svc/svclet/services"
)

// serviceProxy makes the proxy of services. On a machine that cannot have one, the agent
// works without.
func serviceProxy(ctx context.Context, base common, conn connections) tasks {
	if !base.ServiceProxy || conn.clients == nil {
		return tasks{}
	}
	logger := klog.FromContext(ctx)
	o := proxy.Options{
		Services: services.New(), Local: map[services.Key]netip.AddrPort{}, Node: base.name, Clock: base.Clock,
		PodRanges: func() []string {
			return strings.FieldsFunc(base.Configuration.PodCIDR, func(r rune) bool { return r == ',' })
		},
	}
	if server := loopback(base.API.Host); server.IsValid() {
		o.Local[services.Key{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}] = server
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
		return tasks{}
	}
	follow := func(ctx context.Context) { o.Services.Run(ctx, conn.clients.Heartbeats, conn.clients.Discovery) }
	return tasks{parts: []func(context.Context){follow, p.Run}}
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
