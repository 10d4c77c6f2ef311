package decision

import (
	"fmt"
	"slices"
	"strings"
)

// Decision is the decision about one pod.
type Decision struct {
	// Node is the name of the chosen node, empty if there is none.
	Node string
	// Nodes is the number of nodes in the cluster, and Feasible the number of
	// feasible nodes that were found. In large clusters the search ends early.
	Nodes, Feasible int
	// Claims are the claims of the pod that must be bound first, in no particular
	// order. When they are bound, the caller decides again.
	Claims []ClaimDecision
	// Devices are the resource claims of the pod to write before it is bound. They are
	// decided on when all other claims are bound.
	Devices []DeviceDecision
	// ExtendedStatus is what to write into the pod's status when Devices are written; nil if
	// it says so already.
	ExtendedStatus *ExtendedStatus
	// Wait is set if the pod must not be bound yet when Devices are written. When the claim
	// changes, or the time for that is over, the caller decides again.
	Wait *DeviceWait
	// Shares is set if the pod must not be bound yet because a claim is being allocated for
	// another pod of its group. When that one changes, the pod is decided on again.
	Shares bool
	// Release is the name of a resource claim to deallocate if there is no node: it is
	// allocated where the pod does not fit, or its devices cannot become ready. The claim for
	// the pod's extended resources is to be deleted. Empty if there is none.
	Release string

	// Err is why there is no decision: an extender has failed, or the search for devices took too
	// long. Of the other fields only Nodes counts then.
	Err error

	// Gated is set if the pod has scheduling gates: only a change of the pod itself
	// can make it schedulable.
	Gated bool
	// PodReason is the reason why the pod fits no node, which does not depend on the nodes: a
	// claim that does not exist.
	PodReason string
	// Reasons are the reasons of the filters ("Insufficient cpu"), with the number of
	// nodes; a node can have several. Nil if there is a node.
	Reasons map[string]int
	// Filters are the names of the filters that rejected nodes, if there is no node:
	// the names of kube-scheduler's plugins.
	Filters []string
	// WokenBy are the events after which these filters may accept a node. A change of
	// the pod itself is always one.
	WokenBy Event
}

// Message is that of the condition PodScheduled and the event FailedScheduling. It
// is empty if there is a node.
func (d *Decision) Message() string {
	switch {
	case d.Node != "":
		return ""
	case d.Gated:
		return "Scheduling is blocked due to non-empty scheduling gates"
	case d.Nodes == 0:
		return "no nodes available to schedule pods"
	case d.PodReason != "":
		return fmt.Sprintf("0/%d nodes are available: %s.", d.Nodes, d.PodReason)
	}
	return notAvailable(d.Nodes, d.Reasons)
}

// notAvailable lists the reasons, each with its number of nodes.
func notAvailable(nodes int, byReason map[string]int) string {
	reasons := make([]string, 0, len(byReason))
	for reason, nodes := range byReason {
		reasons = append(reasons, fmt.Sprintf("%d %s", nodes, reason))
	}
	slices.Sort(reasons)
	return fmt.Sprintf("0/%d nodes are available: %s.", nodes, strings.Join(reasons, ", "))
}

// reject records the filters that left no node.
func (d *Decision) reject(by filterSet) {
	for i, f := range filters {
		if by&(1<<i) != 0 {
			d.Filters = append(d.Filters, f.name)
			d.WokenBy |= f.wokenBy
		}
	}
}

// reasons counts nodes by reason. A list is faster than a map, as there are few.
type reasons []struct {
	reason string
	nodes  int
}

func (r *reasons) add(reason string, nodes int) {
	for i := range *r {
		if (*r)[i].reason == reason {
			(*r)[i].nodes += nodes
			return
		}
	}
	if nodes > 0 {
		*r = append(*r, struct {
			reason string
			nodes  int
		}{reason, nodes})
	}
}

func (r reasons) byReason() map[string]int {
	m := make(map[string]int, len(r))
	for _, each := range r {
		m[each.reason] = each.nodes
	}
	return m
}
