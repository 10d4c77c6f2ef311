package decision

import (
	"fmt"
	"slices"
	"strings"
)

// Decision is the answer for one pod.
type Decision struct {
	// Node is the name of the chosen node, empty if there is none.
	Node string
	// Nodes is the number of nodes in the cluster, and Feasible the number of
	// those found that would do (not all are looked for in large clusters).
	Nodes, Feasible int
	// Claims are what is to be done about claims of the pod that wait for it, in
	// no particular order. When they are bound, decide again.
	Claims []ClaimDecision

	// Gated tells that the pod has scheduling gates: it is not yet to be
	// scheduled, and nothing but a change of the pod itself ends that.
	Gated bool
	// Never is the reason why no node at all will do, such as a claim that does
	// not exist; nodes were not looked at then.
	Never string
	// Reasons are those that ruled nodes out, "Insufficient cpu" say, with the
	// number of nodes; a node may have several. Nil if there is a node.
	Reasons map[string]int
	// Filters are the names of the filters that ruled nodes out, if there is no
	// node: the names of kube-scheduler's plugins.
	Filters []string
	// WokenBy are the events that may make these filters change their mind. A
	// change of the pod itself always may.
	WokenBy Event
}

// Message says why there is no node, in the words of the condition PodScheduled
// and the event FailedScheduling. It is empty if there is a node.
func (d *Decision) Message() string {
	switch {
	case d.Node != "":
		return ""
	case d.Gated:
		return "Scheduling is blocked due to non-empty scheduling gates"
	case d.Nodes == 0:
		return "no nodes available to schedule pods"
	case d.Never != "":
		return fmt.Sprintf("0/%d nodes are available: %s.", d.Nodes, d.Never)
	}
	reasons := make([]string, 0, len(d.Reasons))
	for reason, nodes := range d.Reasons {
		reasons = append(reasons, fmt.Sprintf("%d %s", nodes, reason))
	}
	slices.Sort(reasons)
	return fmt.Sprintf("0/%d nodes are available: %s.", d.Nodes, strings.Join(reasons, ", "))
}

// reject writes down which filters have left no node.
func (d *Decision) reject(by filterSet) {
	for i, f := range filters {
		if by&(1<<i) != 0 {
			d.Filters = append(d.Filters, f.name)
			d.WokenBy |= f.wokenBy
		}
	}
}

// reasons counts nodes by reason. There are few reasons, so that a list is
// faster than a map.
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
