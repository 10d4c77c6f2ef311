//go:build linux

package podnetwork

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/knftables"

	"svc.dev/svc/svclet/nft"
	"svc.dev/svc/svclet/podnetwork/plan"
	"svc.dev/svc/svclet/reflector"
	"svc.dev/svc/svclet/syncloop"
)

// Options are what a network is made with.
type Options struct {
	// Mode is plan.HostRoutes or plan.VXLAN.
	Mode string
	// Core is the client of nodes.
	Core rest.Interface
	// Node is the name of this node.
	Node string
	// Bridge is the interface of the node's pods; empty if another runtime connects them,
	// whose own rules then decide which connections get the node's address.
	Bridge string
	// Runtime is what connects pods to the bridge; nil without Bridge.
	Runtime Runtime
	// Warn records a warning event about the node.
	Warn  func(reason, message string)
	Clock clock.WithTicker
	// Tables returns access to nftables' tables; nil means the kernel's.
	Tables func(family knftables.Family, name string) (knftables.Interface, error)
	// Machine is the machine's network; nil means the kernel's.
	Machine Machine
}

// Runtime connects this node's pods to the bridge.
type Runtime interface {
	// PodRanges returns the address ranges of this node's pods.
	PodRanges() ([]string, error)
	// SetMTU sets the MTU of new pods.
	SetMTU(mtu int) error
	// Masquerade makes connections of pods that leave this machine get its address, or not.
	Masquerade(ctx context.Context, on bool) error
}

// Machine is the network of the machine.
type Machine interface {
	Path(to netip.Addr) (plan.Path, bool)
	Apply(plan.Plan) error
	// Watch calls changed when Apply may have something to mend, until ctx is done or
	// events have been lost.
	Watch(ctx context.Context, changed func()) error
}

// defaultName stands for the bridge in names if there is none.
const defaultName = "svclet"

// NotReached is the reason of the events about nodes whose pods this node does not reach.
const NotReached = "PodNetworkNotReached"

// Network keeps the routes and rules of a node.
type Network struct {
	options Options
	nodes   *nodes
	tables  []*table
	// failure is the last error that was logged, and problems are the events about nodes.
	failure  string
	problems []plan.Problem
	// unassigned is true while this node is registered and has no pod CIDRs, warned when
	// an event says so.
	unassigned, warned bool
}

// New returns a network that changes nothing before Prepare and Run. The error says what
// the machine lacks.
func New(o Options) (*Network, error) {
	if o.Tables == nil {
		o.Tables = nft.Tables
	}
	n := &Network{options: o, nodes: newNodes()}
	if o.Bridge != "" {
		for _, family := range []knftables.Family{knftables.IPv4Family, knftables.IPv6Family} {
			nft, err := o.Tables(family, tableName(o.Bridge))
			if err != nil {
				return nil, errNoNftables(err)
			}
			n.tables = append(n.tables, &table{nft: nft, v6: family == knftables.IPv6Family, bridge: o.Bridge, tunnel: o.Bridge + tunnelSuffix})
		}
	}
	return n, nil
}

func tableName(bridge string) string { return bridge + "-pods" }

// Prepare makes connections of pods get the node's address where they leave the cluster,
// before the API server has been reached. Rules of an earlier start stay until then.
func (n *Network) Prepare(ctx context.Context) {
	if n.options.Bridge == "" {
		return
	}
	err := n.prepare(ctx)
	if err == nil {
		err = n.options.Runtime.Masquerade(ctx, false)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to write rules of the pod network, will retry")
	}
}

func (n *Network) prepare(ctx context.Context) error {
	own, err := n.ownRanges(plan.Plan{})
	if err != nil {
		return err
	}
	for _, t := range n.tables {
		there, err := nft.Exists(ctx, t.nft)
		if err == nil && !there {
			err = t.write(ctx, ranges{own, own})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ownRanges returns the ranges of this node's pods: those that pods get now, and those
// that the cluster has assigned.
func (n *Network) ownRanges(p plan.Plan) ([]netip.Prefix, error) {
	texts, err := n.options.Runtime.PodRanges()
	if err != nil {
		return nil, err
	}
	own := slices.Clone(p.Own)
	for _, text := range texts {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			own = append(own, prefix.Masked())
		}
	}
	return plan.Compact(own), nil
}

// Run keeps routes and rules until ctx is done. They stay after it: connections between
// pods go on while the agent is restarted.
func (n *Network) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("podnetwork"))
	if n.options.Machine == nil {
		machine, err := openKernel(n.options.Bridge)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Failed to connect the pods of this node to those of others")
			return
		}
		defer machine.Close()
		n.options.Machine = machine
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() {
		reflector.Run(ctx, n.options.Core, "nodes", fields.Everything(), &corev1.Node{}, "nodes", n.nodes)
	})
	watching.Go(func() { n.watchMachine(ctx) })
	n.loop().Run(ctx)
}

func (n *Network) loop() syncloop.Loop {
	return syncloop.Loop{
		Clock: n.options.Clock, Changed: n.nodes.changed, Signal: n.nodes.signal, Sync: n.sync, Check: n.check,
		Generation: nft.Generation, Verify: n.verify,
	}
}

// watchMachine requests a sync whenever other programs may have removed what the network
// needs.
func (n *Network) watchMachine(ctx context.Context) {
	for {
		err := n.options.Machine.Watch(ctx, n.nodes.signal)
		if ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).V(2).Info("Failed to watch the machine's network, will retry", "err", err)
		n.nodes.signal() // for the events that were lost
		select {
		case <-ctx.Done():
			return
		case <-n.options.Clock.After(syncloop.RetryDelay):
		}
	}
}

// check makes the next sync write the tables that another program has removed or flushed. It warns
// of a cluster that has not assigned pod CIDRs to this node for some time.
func (n *Network) check(ctx context.Context) {
	if n.unassigned && !n.warned {
		n.warned = true
		const message = "The cluster has not assigned pod CIDRs to this node, which its pods need to reach those of other nodes: run the control plane with --allocate-node-cidrs, or svclet with --pod-network=none"
		klog.FromContext(ctx).Info(message)
		n.options.Warn(NotReached, message)
	}
	_, _ = n.verify(ctx) // it logs its error, and the sync writes what it found missing
}

// verify finds the tables that another program has removed or flushed, and reports whether
// there are any. It logs its error.
func (n *Network) verify(ctx context.Context) (missing bool, err error) {
	for _, t := range n.tables {
		if t.written == nil {
			continue
		}
		there, failure := nft.HasRules(ctx, t.nft, map[string]int{natChain: len(t.rules())})
		switch {
		case failure != nil:
			err = failure
			klog.FromContext(ctx).Error(err, "Failed to read rules of the pod network, will retry")
		case !there:
			klog.FromContext(ctx).Info("Rules of the pod network are missing, writing them again")
			t.written, missing = nil, true
		}
	}
	return missing, err
}

// sync makes the machine have what the nodes require, and reports whether it has.
func (n *Network) sync(ctx context.Context) bool {
	all, synced := n.nodes.list()
	if !synced {
		return true
	}
	p := plan.Decide(plan.Input{Mode: n.options.Mode, Node: n.options.Node, Nodes: all, Path: n.options.Machine.Path})
	if !p.Registered {
		return true // a change of the Node requests a sync
	}
	n.unassigned = len(p.Own) == 0
	err := errors.Join(n.apply(ctx, p)...)
	n.report(ctx, p, err)
	return err == nil
}

func (n *Network) apply(ctx context.Context, p plan.Plan) []error {
	var errs []error
	if n.options.Bridge != "" {
		own, err := n.ownRanges(p)
		if err != nil {
			return []error{err}
		}
		cluster := plan.Compact(slices.Concat(own, p.Ranges))
		for _, t := range n.tables {
			errs = append(errs, t.write(ctx, ranges{own, cluster}))
		}
		if errors.Join(errs...) == nil {
			errs = append(errs, n.options.Runtime.Masquerade(ctx, false))
		}
		if p.MTU > 0 {
			errs = append(errs, n.options.Runtime.SetMTU(p.MTU))
		}
	}
	return append(errs, n.options.Machine.Apply(p))
}

// report logs a failure once, and records an event when pods of a node are not reached.
func (n *Network) report(ctx context.Context, p plan.Plan, err error) {
	logger, failure := klog.FromContext(ctx), ""
	if err != nil && ctx.Err() == nil {
		failure = err.Error()
	}
	if failure != "" && failure != n.failure {
		logger.Error(err, "Failed to connect the pods of this node to those of others, will retry")
	}
	n.failure = failure
	for _, problem := range p.Problems {
		if !slices.Contains(n.problems, problem) {
			logger.Info("Pods of a node are not reached", "node", klog.KRef("", problem.Node), "reason", problem.Reason)
			n.options.Warn(NotReached, "Pods of node "+problem.Node+" are not reached from this node: "+problem.Reason)
		}
	}
	n.problems = p.Problems
}

// Remove removes what networks of a bridge have made.
func Remove(bridge string) error {
	k, err := openKernel(bridge)
	if err != nil {
		return err
	}
	defer k.Close()
	err = k.Remove()
	if bridge != "" {
		err = errors.Join(err, nft.Remove(tableName(bridge)))
	}
	return err
}
