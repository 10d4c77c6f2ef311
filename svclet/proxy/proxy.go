//go:build linux

package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/knftables"

	"svc.dev/svc/svclet/nft"
	"svc.dev/svc/svclet/proxy/ruleset"
	"svc.dev/svc/svclet/services"
	"svc.dev/svc/svclet/syncloop"
)

// Options are what a proxy is made with.
type Options struct {
	// Services are those of the API server.
	Services *services.Store
	// Node is the name of this node.
	Node string
	// Zone returns the zone of this node, which may change while the proxy runs; empty
	// for none.
	Zone func() string
	// Addresses returns the addresses of this node, which may change while the proxy runs; nil
	// for none.
	Addresses func() []string
	// Bridge is the interface of the node's pods; empty if another runtime connects
	// them.
	Bridge string
	// PodRanges returns the node's ranges of pod addresses; they may change while the
	// proxy runs.
	PodRanges func() []string
	// Local returns the servers on this machine that serve services while these have no
	// endpoints: a loopback address cannot be an endpoint. They may change while the proxy runs;
	// nil for none.
	Local func() map[services.Key]ruleset.Fallback
	Clock clock.WithTicker
	// Tables returns access to nftables' tables; nil means the kernel's.
	Tables func(family knftables.Family, name string) (knftables.Interface, error)
	// Sysctl sets a kernel parameter; nil means the kernel's.
	Sysctl func(name, value string) error
	// Generation returns a number that each change of a table increases; nil means the kernel's.
	Generation func() (uint32, error)
	// EndFlows makes connection tracking forget flows; nil means that of the kernel. The error
	// is [errors.ErrUnsupported] if it never can.
	EndFlows func(family corev1.IPFamily, stale *ruleset.Stale) error
}

// LoopbackRoutes is the kernel parameter, with the value 1, by which connections of this machine to
// 127.0.0.1 and a node port leave it for a pod. Then other machines of the same network reach programs
// at 127.0.0.1 (CVE-2020-8558), unless the rules of the proxy, or others, drop their packets.
const LoopbackRoutes = "net/ipv4/conf/all/route_localnet"

// defaultTable is the name of the tables of a proxy without a bridge.
const defaultTable = "svclet"

// Proxy keeps the rules of a node.
type Proxy struct {
	options Options
	changes *services.Changes
	tables  []*table
	// comparison is that of what the tables have with what they are to have.
	comparison nft.Comparison
	written    atomic.Bool
	failure    atomic.Pointer[error] // of the last sync
	unset      map[string]bool       // kernel parameters that could not be set
}

// New returns a proxy that changes nothing before Run. The error says what the machine
// lacks.
func New(o Options) (*Proxy, error) {
	if o.Tables == nil {
		o.Tables = nft.Tables
	}
	if o.Sysctl == nil {
		o.Sysctl = nft.SetParameter
	}
	if o.EndFlows == nil {
		o.EndFlows = endFlows
	}
	if o.Generation == nil {
		o.Generation = nft.Generation
	}
	if o.Local == nil {
		o.Local = func() map[services.Key]ruleset.Fallback { return nil }
	}
	if o.Addresses == nil {
		o.Addresses = func() []string { return nil }
	}
	p := &Proxy{options: o, changes: o.Services.Follow(), comparison: nft.Comparison{Generation: o.Generation}, unset: map[string]bool{}}
	for _, of := range []struct {
		family corev1.IPFamily
		nft    knftables.Family
	}{{corev1.IPv4Protocol, knftables.IPv4Family}, {corev1.IPv6Protocol, knftables.IPv6Family}} {
		tables, err := o.Tables(of.nft, tableName(o.Bridge))
		if err != nil {
			return nil, fmt.Errorf("service proxy: %w: %s, or turn the proxy off with --service-proxy=false", err, nft.Remedy)
		}
		p.tables = append(p.tables, &table{nft: tables, family: of.family})
	}
	return p, nil
}

// tableName returns the name of the tables of a proxy.
func tableName(bridge string) string { return cmp.Or(bridge, defaultTable) }

// Run keeps the rules until ctx is done. They stay after it: connections to services
// go on while the agent is restarted.
func (p *Proxy) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("proxy"))
	p.setSysctls(ctx, nft.BridgeParameters()...)
	syncloop.Loop{Clock: p.options.Clock, Changed: p.changes.Changed, Signal: p.changes.Signal, Sync: p.sync, Check: p.check, Generation: p.options.Generation, Verify: p.verify}.Run(ctx)
}

// Signal requests a sync, which writes what changes with the servers of this machine.
func (p *Proxy) Signal() { p.changes.Signal() }

// Written reports whether the tables have the services and endpoints of the last sync.
func (p *Proxy) Written() bool { return p.written.Load() }

// Problem returns why the last sync has failed, or nil.
func (p *Proxy) Problem() error {
	if err := p.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// sync applies the changes since the last call. It reports whether all tables have them, and
// no flow is left that is to be ended soon.
func (p *Proxy) sync(ctx context.Context) bool {
	changes, synced := p.changes.Take()
	if !synced {
		return true
	}
	var failed error
	done := true
	for _, t := range p.tables {
		for key := range changes {
			t.mark(key)
		}
		began, whole := p.options.Clock.Now(), !t.written
		operations, err := t.apply(ctx, p.options)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Failed to write service rules, will retry", "family", t.family)
			failed = fmt.Errorf("write service rules: %w", err)
			continue
		}
		if whole {
			p.routeLoopback(ctx, t)
		}
		done = t.endFlows(ctx, p.options) && done
		if operations > 0 {
			klog.FromContext(ctx).V(4).Info("Wrote service rules", "family", t.family, "operations", operations, "took", p.options.Clock.Since(began))
		}
	}
	if failed != nil && ctx.Err() == nil {
		p.failure.Store(&failed)
	} else {
		p.failure.Store(nil)
	}
	p.written.Store(failed == nil)
	return p.same(ctx) && failed == nil && done
}

// same compares what the tables have with what they are to have, after a check. It reports false if
// another program has changed one, which the next sync writes again.
func (p *Proxy) same(ctx context.Context) bool {
	differs, err := p.comparison.Run(func() (rewrite []func(), err error) {
		for _, t := range p.tables {
			if !t.written {
				continue
			}
			same, failure := nft.Has(ctx, t.nft, t.rules.Content(t.hooks, t.choices, t.owners))
			if err = errors.Join(err, failure); !same {
				rewrite = append(rewrite, func() { t.written = false })
			}
		}
		return rewrite, err
	})
	switch {
	case err != nil:
		klog.FromContext(ctx).Error(err, "Failed to read service rules, will retry")
	case differs:
		klog.FromContext(ctx).Info("Another program has changed service rules, writing them again")
	}
	return !differs
}

// check requests a sync, which writes a table again that another program has removed or changed,
// or after a change of the node's pod ranges, zone, addresses or servers. The sync compares all
// that the tables have if any table of the machine has changed since the last comparison.
func (p *Proxy) check(ctx context.Context) {
	p.comparison.Request()
	for _, t := range p.tables {
		t.stale.Postponed = false
	}
	_, _ = p.verify(ctx) // it logs its error, and the sync writes what it found missing
	p.setSysctls(ctx, nft.BridgeParameters()...)
	for _, t := range p.tables {
		p.routeLoopback(ctx, t)
	}
	p.changes.Signal()
}

// verify finds the tables that another program has removed or flushed, and reports whether
// there are any. It logs its error.
func (p *Proxy) verify(ctx context.Context) (missing bool, err error) {
	for _, t := range p.tables {
		if !t.written {
			continue
		}
		there, failure := nft.HasRules(ctx, t.nft, t.hooks)
		switch {
		case failure != nil:
			err = failure
			klog.FromContext(ctx).Error(err, "Failed to read service rules, will retry", "family", t.family)
		case !there:
			klog.FromContext(ctx).Info("Service rules are missing, writing them again", "family", t.family)
			t.written, missing = false, true
		}
	}
	return missing, err
}

// table is the table of an IP family.
type table struct {
	nft    knftables.Interface
	family corev1.IPFamily
	// written is false before the first sync, and after a failure: then the whole
	// table is written.
	written bool
	rules   ruleset.Table
	at      ruleset.Place
	local   map[services.Key]ruleset.Fallback
	// hooks are the numbers of rules of the chains by which the kernel enters the table.
	hooks map[string]int
	// parts are what the table has of each service, owners the services that want its
	// keys, choices the numbers of endpoints that it has rules for, and dirty those services that may have
	// changed since.
	parts   map[services.Key]ruleset.Part
	owners  ruleset.Owners
	choices ruleset.Choices
	dirty   map[services.Key]bool
	// stale are the flows of UDP that are to end, and unended is whether the last attempt
	// to end some has failed.
	stale   ruleset.Stale
	unended bool
}

func (t *table) mark(k services.Key) {
	if t.dirty == nil {
		t.dirty = map[services.Key]bool{}
	}
	t.dirty[k] = true
}

// markPlaced marks the services that change with the addresses of the node, which are those with
// source ranges, and with its servers.
func (t *table) markPlaced(all *services.Store, addresses []string, local map[services.Key]ruleset.Fallback) {
	for _, some := range []map[services.Key]ruleset.Fallback{t.local, local} {
		for k := range some {
			if !t.local[k].Equal(local[k]) {
				t.mark(k)
			}
		}
	}
	if slices.Equal(t.at.Addresses, addresses) {
		return
	}
	for _, k := range all.Keys() {
		if s := all.Get(k).Service; s != nil && len(s.Spec.LoadBalancerSourceRanges) > 0 {
			t.mark(k)
		}
	}
}

// apply writes the parts of dirty services, or the whole table, in one transaction. It
// returns the number of operations.
func (t *table) apply(ctx context.Context, o Options) (int, error) {
	tx := t.nft.NewTransaction()
	local := o.Local()
	rules := ruleset.Table{Family: t.family, Bridge: o.Bridge, Servers: servers(local), PodRanges: o.PodRanges()}
	at := ruleset.Place{Node: o.Node, Zone: o.Zone(), Addresses: o.Addresses()}
	if !slices.Equal(t.rules.PodRanges, rules.PodRanges) || t.at.Zone != at.Zone {
		t.written = false
	}
	if t.written {
		rules.ChangeServers(tx, servers(t.local), t.hooks)
		t.markPlaced(o.Services, at.Addresses, local)
	}
	t.rules, t.at, t.local = rules, at, local
	parts := map[services.Key]ruleset.Part{}
	var changes []ruleset.Change
	before := t.owners
	if !t.written {
		t.owners = ruleset.Owners{}
		t.choices, t.hooks = rules.Create(tx)
		for _, k := range o.Services.Keys() {
			service := t.service(o.Services, k)
			if service.Service == nil {
				continue // it was deleted meanwhile, and is dirty
			}
			parts[k] = ruleset.PartOf(service, t.family, at)
			changes = append(changes, ruleset.Change{After: parts[k]})
		}
	} else {
		for k := range t.dirty {
			if service := t.service(o.Services, k); service.Service != nil {
				parts[k] = ruleset.PartOf(service, t.family, at)
			}
			changes = append(changes, ruleset.Change{Before: t.parts[k], After: parts[k]})
		}
	}
	var clients ruleset.Clients
	if !t.written {
		clients = t.clients(ctx)
		clients.Number(changes)
	}
	conflicts := rules.Change(tx, t.owners, t.choices, &t.stale, changes...)
	if !t.written {
		t.stale.Gone(before, t.owners)
		clients.Restore(tx, t.choices)
	}
	if tx.NumOperations() > 0 {
		if err := t.nft.Run(ctx, tx); err != nil {
			changed := t.written
			t.written = false // what the table has is not known for sure
			if !changed || ctx.Err() != nil {
				return 0, err
			}
			// Kernels without all fixes until 6.4 refuse to delete a chain with what leads to it.
			klog.FromContext(ctx).V(2).Info("The kernel has refused a change of service rules, writing all of them", "family", t.family, "err", err)
			return t.apply(ctx, o)
		}
	}
	t.keep(parts)
	for _, c := range conflicts {
		klog.FromContext(ctx).Info("Services have the same address and port, the oldest one gets its connections", "map", c.Key.Map, "key", c.Key.Fields, "of", c.Services)
	}
	return tx.NumOperations(), nil
}

// clients returns what the table in the kernel has of session affinity. It logs its error.
func (t *table) clients(ctx context.Context) ruleset.Clients {
	var endpoints map[string][]nft.Member
	clients, err := nft.Members(ctx, t.nft, ruleset.IsClients)
	if err == nil && len(clients) > 0 {
		endpoints, err = nft.Members(ctx, t.nft, ruleset.IsEndpoints)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to read session affinity, clients may get other endpoints", "family", t.family)
	}
	return ruleset.NewClients(t.family, clients, endpoints)
}

// endFlows ends the stale flows, after their rules. It reports whether none are left that a
// retry is to end: only the first failure is followed by one, later ones by that of the next
// check or of further stale flows. A kernel that cannot end flows keeps them.
func (t *table) endFlows(ctx context.Context, o Options) bool {
	if t.stale.Empty() || t.stale.Postponed {
		return true
	}
	err := o.EndFlows(t.family, &t.stale)
	again := t.unended
	t.unended = err != nil
	if err != nil && !again {
		klog.FromContext(ctx).Error(err, "Failed to end flows of UDP, some may go to endpoints that are gone until they expire", "family", t.family)
	}
	if err == nil || errors.Is(err, errors.ErrUnsupported) {
		t.stale = ruleset.Stale{}
		return true
	}
	t.stale.Postponed = again
	return again
}

// servers returns the sorted addresses of servers of this machine that other machines could have
// routes to.
func servers(local map[services.Key]ruleset.Fallback) []netip.Addr {
	var all []netip.Addr
	for _, fallback := range local {
		for _, server := range fallback.Addresses {
			if !server.Addr().IsLoopback() {
				all = append(all, server.Addr())
			}
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// service returns a service with its endpoints.
func (t *table) service(of *services.Store, k services.Key) ruleset.Service {
	object := of.Get(k)
	return ruleset.Service{Service: object.Service, Slices: object.Slices, Fallback: t.local[k]}
}

// keep records the parts that were written.
func (t *table) keep(parts map[services.Key]ruleset.Part) {
	if !t.written {
		t.written, t.parts, t.dirty = true, parts, nil
		return
	}
	for k := range t.dirty {
		if part, found := parts[k]; found {
			t.parts[k] = part
		} else {
			delete(t.parts, k)
		}
	}
	t.dirty = nil
}

// Remove removes the rules of a proxy with a bridge, which is empty as in [Options].
func Remove(bridge string) error { return nft.Remove(tableName(bridge)) }

// routeLoopback sets [LoopbackRoutes] if the table is that of IPv4 and is written, with the rule that
// keeps other machines from loopback addresses.
func (p *Proxy) routeLoopback(ctx context.Context, t *table) {
	if t.family == corev1.IPv4Protocol && t.written {
		p.setSysctls(ctx, LoopbackRoutes)
	}
}

// setSysctls sets kernel parameters that the rules need, which other programs may have changed.
func (p *Proxy) setSysctls(ctx context.Context, names ...string) {
	for _, name := range names {
		err := p.options.Sysctl(name, "1")
		if err != nil && !p.unset[name] {
			klog.FromContext(ctx).Error(err, "Failed to set kernel parameter, some connections to services may fail, will retry", "parameter", name)
		}
		p.unset[name] = err != nil
	}
}
