package cluster

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"svc.dev/svc/apiserver/bootstrap"
	"svc.dev/svc/internal/component"
)

// podAccess lets pods reach an API server that listens at a loopback address only: it
// listens at the addresses of the node's bridge, too, for clients on this machine, and
// publishes them as the endpoints of the service kubernetes.
type podAccess struct {
	component.Task
	server *apiServer
	keys   *certificates
	clock  clock.Clock
	// shared means that other machines may have API servers of the same storage.
	shared bool
	// others are the ranges of pods of all nodes, with a comma between.
	others string

	client kubernetes.Interface

	mu        sync.Mutex // guards what follows
	published []netip.AddrPort
	endpoints []*bootstrap.Endpoints
}

// podBridge is the part of the container runtime that is used.
type podBridge interface {
	// Gateways makes the bridge of pods, and returns its addresses.
	Gateways() ([]netip.Addr, error)
	// PodRanges returns the address ranges of this node's pods.
	PodRanges() ([]string, error)
	// PodRangesChanged receives a value when they have changed.
	PodRangesChanged() <-chan struct{}
}

// podAccessRules are the permissions of bootstrap.Endpoints.
func podAccessRules() []rbacv1.PolicyRule {
	change := []string{"create", "delete", "get", "list", "update"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create", "get"}},
		{APIGroups: []string{""}, Resources: []string{"endpoints"}, Verbs: []string{"create", "get", "update"}},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: change},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: change},
	}
}

// podAccessInterval is how often the bridge and the listeners are repaired.
const podAccessInterval = 5 * time.Minute

// start begins to listen on a bridge, until Stop. It does nothing
// if the API server listens at other addresses.
func (p *podAccess) start(ctx context.Context, pods podBridge) error {
	if p.server.listeners == nil {
		return nil
	}
	var err error
	if p.client, err = kubernetes.NewForConfig(p.keys.client("svc-up")); err != nil {
		return err
	}
	step := bootstrap.Step{
		Name: "pod-access", Interval: podAccessInterval, Wake: pods.PodRangesChanged(),
		Ensure: func(ctx context.Context) error { return p.ensure(ctx, pods) }, Stop: p.withdraw,
	}
	endpoints := bootstrap.Step{Name: "pod-access-endpoints", Interval: bootstrap.EndpointsInterval, Ensure: p.repair}
	p.Go(ctx, "access of pods to the API server", func(ctx context.Context) error {
		if err := step.First(ctx, p.clock); err != nil {
			return err
		}
		var repairing sync.WaitGroup
		defer repairing.Wait()
		repairing.Go(func() { endpoints.Keep(ctx, p.clock) })
		step.Keep(ctx, p.clock)
		return nil
	})
	return nil
}

// ensure makes the addresses of pods' ranges lead to the API server.
func (p *podAccess) ensure(ctx context.Context, pods podBridge) error {
	gateways, err := pods.Gateways()
	if err != nil {
		return err
	}
	texts, err := pods.PodRanges()
	if err != nil {
		return err
	}
	ranges, err := parseRanges(append(texts, strings.FieldsFunc(p.others, func(r rune) bool { return r == ',' })...))
	if err != nil {
		return err
	}
	port := uint16(p.server.options.SecureServing.BindPort)
	var addresses []netip.AddrPort
	for _, gateway := range gateways {
		addresses = append(addresses, netip.AddrPortFrom(gateway, port))
	}
	if err := p.keys.Renew(ctx); err != nil { // the bridge has addresses that the certificate may lack
		return err
	}
	if err := p.server.listeners.Set(ctx, addresses, func(client netip.Addr) bool { return onMachine(client, ranges) }); err != nil {
		return fmt.Errorf("listen for pods: %w", err)
	}
	return p.publish(ctx, addresses)
}

// publish makes the addresses of the family of the service kubernetes its endpoints.
func (p *podAccess) publish(ctx context.Context, addresses []netip.AddrPort) error {
	services, err := p.server.options.Network.ServiceCIDRs()
	if err != nil {
		return err
	}
	addresses = slices.DeleteFunc(slices.Clone(addresses), func(a netip.AddrPort) bool { return a.Addr().Is4() != services[0].Addr().Is4() })
	if err := p.replace(ctx, addresses); err != nil {
		return err
	}
	return p.repair(ctx)
}

// replace makes other addresses those that repair publishes.
func (p *podAccess) replace(ctx context.Context, addresses []netip.AddrPort) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Equal(addresses, p.published) {
		return nil
	}
	if err := p.withdrawLocked(ctx); err != nil {
		return err
	}
	p.published = addresses
	for _, address := range addresses {
		p.endpoints = append(p.endpoints, bootstrap.NewEndpoints(p.client, p.clock, address, p.shared))
	}
	return nil
}

// repair publishes the endpoints again if they have been changed, and renews their leases.
func (p *podAccess) repair(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.endpoints {
		if err := e.Ensure(ctx); err != nil {
			return err
		}
	}
	return nil
}

// withdraw removes the endpoints if other servers have theirs. A server that is alone
// leaves them to the next start: without a server, no client can read them.
func (p *podAccess) withdraw(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.withdrawLocked(ctx)
}

func (p *podAccess) withdrawLocked(ctx context.Context) error {
	endpoints := p.endpoints
	p.endpoints, p.published = nil, nil
	if !p.shared {
		return nil
	}
	for _, e := range endpoints {
		if err := e.Withdraw(ctx); err != nil {
			return err
		}
	}
	return nil
}

// parseRanges parses address ranges.
func parseRanges(texts []string) ([]netip.Prefix, error) {
	var ranges []netip.Prefix
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, prefix)
	}
	return ranges, nil
}

// onMachine reports whether an address is that of a pod in one of the ranges, or of this
// machine. Other machines may have a route to the bridge, but the user has not opened the
// API server to them.
func onMachine(client netip.Addr, pods []netip.Prefix) bool {
	if client.IsLoopback() || slices.ContainsFunc(pods, func(p netip.Prefix) bool { return p.Contains(client) }) {
		return true
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(own, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr().Unmap() == client
	})
}
