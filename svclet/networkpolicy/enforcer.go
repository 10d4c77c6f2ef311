package networkpolicy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/knftables"

	"svc.dev/svc/svclet/networkpolicy/ruleset"
	"svc.dev/svc/svclet/nft"
	"svc.dev/svc/svclet/reflector"
	"svc.dev/svc/svclet/runtime"
	"svc.dev/svc/svclet/source"
	"svc.dev/svc/svclet/syncloop"
)

// Options are what an enforcer is made with.
type Options struct {
	// Core and Networking are the clients of pods and namespaces, and of policies.
	Core, Networking rest.Interface
	// Node is the name of this node.
	Node string
	// Bridge is the interface of the node's pods; empty if another runtime connects
	// them.
	Bridge string
	// Results is the directory of CNI's results, which have the addresses of the bridge's
	// ports.
	Results string
	// Warn records a warning event about the node.
	Warn  func(reason, message string)
	Clock clock.WithTicker
	// Tables returns access to nftables' tables; nil means the kernel's.
	Tables func(family knftables.Family, name string) (knftables.Interface, error)
	// Sysctl sets a kernel parameter; nil means the kernel's.
	Sysctl func(name, value string) error
	// Generation returns a number that each change of a table increases; nil means the kernel's.
	Generation func() (uint32, error)
}

// protectTimeout is how long the start of a container waits for the rules of its pod.
const protectTimeout = 10 * time.Second

// NotEnforced is the reason of the events about nodes that do not enforce policies, or
// not all of them.
const NotEnforced = "NetworkPolicyNotEnforced"

// families are those of the tables.
var families = [...]knftables.Family{knftables.IPv4Family, knftables.IPv6Family}

// Enforcer keeps the rules of a node.
type Enforcer struct {
	options Options
	state   *state
	tables  []*table
	// ports are nil without a bridge, or if the kernel does not filter bridges.
	ports *ports
	// warned is whether a warning about the bridge has been given.
	warned bool
	// comparison is that of what the tables have with what they are to have.
	comparison nft.Comparison
}

// table is the table of a family.
type table struct {
	nft    knftables.Interface
	family knftables.Family
	// written is false before the first sync, and after a failure: then the whole
	// table is written.
	written bool
	// hooks has the number of rules of the chains by which the kernel enters the table.
	hooks map[string]int
	// content is what the table is to have when it is compared.
	content nft.Content
}

// New returns an enforcer that changes nothing before Run. The error says what the
// machine lacks.
func New(o Options) (*Enforcer, error) {
	if o.Tables == nil {
		o.Tables = nft.Tables
	}
	if o.Sysctl == nil {
		o.Sysctl = nft.SetParameter
	}
	if o.Generation == nil {
		o.Generation = nft.Generation
	}
	e := &Enforcer{options: o, state: newState(o.Node, o.Bridge), comparison: nft.Comparison{Generation: o.Generation}}
	for _, family := range families {
		tables, err := o.Tables(family, tableName(o.Bridge))
		if err != nil {
			return nil, fmt.Errorf("network policies: %w: %s, or turn them off with --network-policy=false", err, nft.Remedy)
		}
		e.tables = append(e.tables, &table{nft: tables, family: family})
	}
	if o.Bridge != "" {
		tables, err := o.Tables(knftables.BridgeFamily, tableName(o.Bridge))
		if err != nil {
			o.Warn(NotEnforced, "Pods of this node can send from each other's addresses, which network policies do not notice: "+err.Error())
		} else {
			e.ports = newPorts(tables, o.Bridge, o.Results)
		}
	}
	return e, nil
}

// tableName returns the name of the tables of a bridge.
func tableName(bridge string) string {
	if bridge == "" {
		bridge = "svclet"
	}
	return bridge + "-policies"
}

// Run keeps the rules until ctx is done. They stay after it: what policies deny is denied
// while the agent is restarted.
func (e *Enforcer) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("networkpolicy"))
	e.filterBridge(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() {
		reflector.Run(ctx, e.options.Networking, "networkpolicies", fields.Everything(), &networkingv1.NetworkPolicy{}, "network policies", policiesOf(e.state))
	})
	watching.Go(func() { e.watchPeers(ctx) })
	syncloop.Loop{Clock: e.options.Clock, Changed: e.state.changed, Signal: e.state.signal, Sync: e.sync, Check: e.check, Generation: e.options.Generation, Verify: e.verify}.Run(ctx)
}

// watchPeers watches the pods and namespaces of the cluster as soon as there is a policy:
// without one a node does not need them.
func (e *Enforcer) watchPeers(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-e.state.needed:
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() {
		reflector.Run(ctx, e.options.Core, "namespaces", fields.Everything(), &corev1.Namespace{}, "namespaces", namespacesOf(e.state))
	})
	// The addresses of pods that have ended may be those of others.
	running := fields.AndSelectors(
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)))
	reflector.Run(ctx, e.options.Core, "pods", running, &corev1.Pod{}, "pods of all nodes", podsOf(e.state))
}

// sync writes the changes since the last call. It reports whether all tables have them.
func (e *Enforcer) sync(ctx context.Context) bool {
	logger := klog.FromContext(ctx)
	transactions := make([]*knftables.Transaction, len(e.tables))
	for i, t := range e.tables {
		transactions[i] = t.nft.NewTransaction()
	}
	var guarded bool
	version, synced := e.state.take(func(m *ruleset.Model) {
		guarded = m.Guarded()
		for i, t := range e.tables {
			if t.written {
				m.Change(t.family, transactions[i])
			} else {
				m.Create(t.family, transactions[i])
			}
			t.hooks = m.Hooks(t.family)
			if e.comparison.Due() {
				t.content = m.Content(t.family)
			}
		}
	})
	if !synced {
		return true
	}
	var failed error
	for i, t := range e.tables {
		tx := transactions[i]
		if tx.NumOperations() == 0 {
			continue
		}
		began := e.options.Clock.Now()
		if err := t.nft.Run(ctx, tx); err != nil {
			t.written = false // what the table has is not known for sure
			if ctx.Err() == nil {
				logger.Error(err, "Failed to write rules of network policies, will retry", "family", t.family)
			}
			failed = err
			continue
		}
		t.written = true
		logger.V(4).Info("Wrote rules of network policies", "family", t.family, "operations", tx.NumOperations(), "took", e.options.Clock.Since(began))
	}
	bound := e.ports == nil || e.ports.keep(ctx, guarded)
	e.state.wrote(version, failed)
	return e.same(ctx) && failed == nil && bound
}

// same compares what tables have with what they are to have, after a check. It reports false if
// another program has changed one, which the next sync writes again.
func (e *Enforcer) same(ctx context.Context) bool {
	differs, err := e.comparison.Run(func() ([]func(), error) { return e.differing(ctx) })
	switch {
	case err != nil:
		klog.FromContext(ctx).Error(err, "Failed to read rules of network policies, will retry")
	case differs:
		klog.FromContext(ctx).Info("Another program has changed rules of network policies, writing them again")
	}
	return !differs
}

// differing returns for each table that differs from what it is to have a function that makes the
// next sync write it.
func (e *Enforcer) differing(ctx context.Context) (differ []func(), err error) {
	for _, t := range e.tables {
		if !t.written {
			continue
		}
		same, failure := nft.Has(ctx, t.nft, t.content)
		if err = errors.Join(err, failure); !same {
			differ = append(differ, func() { t.written = false })
		}
	}
	if p := e.ports; p != nil && p.written && p.elements != nil {
		same, failure := nft.Has(ctx, p.nft, p.content())
		if err = errors.Join(err, failure); !same {
			differ = append(differ, func() { p.written = false })
		}
	}
	return differ, err
}

// check requests a sync, which writes a table again that another program has removed or flushed.
// The sync compares all that the tables have if any table of the machine has changed since the
// last comparison.
func (e *Enforcer) check(ctx context.Context) {
	e.comparison.Request()
	e.filterBridge(ctx)
	_, _ = e.verify(ctx) // it logs its error, and the sync writes what it found missing
	e.state.signal()
}

// verify finds the tables that another program has removed or flushed, and reports whether
// there are any. It logs its error.
func (e *Enforcer) verify(ctx context.Context) (missing bool, err error) {
	for _, t := range e.tables {
		if !t.written {
			continue
		}
		there, failure := nft.HasRules(ctx, t.nft, t.hooks)
		switch {
		case failure != nil:
			err = failure
			klog.FromContext(ctx).Error(err, "Failed to read rules of network policies, will retry", "family", t.family)
		case !there:
			klog.FromContext(ctx).Info("Rules of network policies are missing, writing them again", "family", t.family)
			t.written, missing = false, true
		}
	}
	if e.ports != nil {
		lost, failure := e.ports.verify(ctx)
		if missing = missing || lost; failure != nil {
			err = failure
			klog.FromContext(ctx).Error(err, "Failed to read rules of the ports of pods, will retry")
		}
	}
	return missing, err
}

// filterBridge makes connections between pods of the same bridge pass the rules.
func (e *Enforcer) filterBridge(ctx context.Context) {
	for _, name := range nft.BridgeParameters() {
		err := e.options.Sysctl(name, "1")
		if err == nil || e.warned {
			continue
		}
		e.warned = true
		klog.FromContext(ctx).Error(err, "Failed to set kernel parameter, network policies are not enforced between pods of this node: load the module br_netfilter", "parameter", name)
		e.options.Warn(NotEnforced, "Network policies are not enforced between pods of this node: load the kernel module br_netfilter")
	}
}

// Protect returns when the rules that policies require for a pod of this node are in
// place. addresses are those of its sandbox. Containers must not start before. A static
// pod does not wait for an API server that has not been reached yet.
func (e *Enforcer) Protect(ctx context.Context, p *corev1.Pod, addresses []string) error {
	if p.Spec.HostNetwork || len(addresses) == 0 {
		return nil
	}
	version, synced := e.state.hold(p, addresses)
	if source.IsStatic(p) && !synced {
		e.admit(ctx, addresses)
	}
	timeout := e.options.Clock.NewTimer(protectTimeout)
	defer timeout.Stop()
	for late := false; ; {
		done, wake, err := e.state.protected(p, version)
		switch {
		case done:
			return nil
		case late:
			return fmt.Errorf("the rules of network policies that select the pod are not in place: %w", err)
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout.C():
			late = true
		}
	}
}

// admit adds the addresses of a pod that does not wait for its rules to those of an earlier
// run, which would drop what it sends until the API server has been reached.
func (e *Enforcer) admit(ctx context.Context, addresses []string) {
	for _, t := range e.tables {
		tx := t.nft.NewTransaction()
		ruleset.Admit(t.family, tx, parse(addresses))
		if tx.NumOperations() == 0 {
			continue
		}
		// Without an earlier run there is nothing to add to.
		if err := t.nft.Run(ctx, tx); err != nil && !knftables.IsNotFound(err) {
			klog.FromContext(ctx).Error(err, "Failed to add a static pod to rules of network policies", "family", t.family)
		}
	}
}

// Adopt adds the pods that the runtime has when the agent starts. It is called before Run:
// the first rules that Run writes have these pods.
func (e *Enforcer) Adopt(pods []runtime.Pod) { e.state.adopt(pods) }

// Release forgets a pod of this node, whose sandboxes have stopped.
func (e *Enforcer) Release(uid types.UID) { e.state.release(uid) }

// Remove removes the rules of an enforcer with a bridge.
func Remove(bridge string) error { return nft.Remove(tableName(bridge)) }
