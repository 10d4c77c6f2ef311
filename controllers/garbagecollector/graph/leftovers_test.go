package graph

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// leftovers returns the garbage that was not deleted.
func (w *apiServer) leftovers() error {
	for _, o := range w.objects {
		if o.kind == unwatched {
			continue // cannot be collected
		}
		if o.Deleting && !w.stuck(o, map[types.UID]bool{}) {
			return fmt.Errorf("%s %s still exists: %v", o.kind, o.UID, o.Object)
		}
		if o.Deleting || w.undecidable(o) {
			continue
		}
		for _, ref := range o.Owners {
			if h := w.truth(o, ref); h != holds {
				return fmt.Errorf("%s %s still has %s %s: %v", o.kind, o.UID, ref.Kind, ref.UID, o.Object)
			}
		}
	}
	return nil
}

// undecidable objects have owners whose state cannot be determined.
func (w *apiServer) undecidable(o *thing) bool {
	return slices.ContainsFunc(o.Owners, func(ref metav1.OwnerReference) bool { return w.truth(o, ref) == unknown })
}

// stuck objects wait for dependents that are undecidable or cannot be collected.
func (w *apiServer) stuck(o *thing, seen map[types.UID]bool) bool {
	if seen[o.UID] || !o.Waiting() {
		return false
	}
	seen[o.UID] = true
	for _, d := range w.objects {
		for _, ref := range d.Owners {
			if ref.UID == o.UID && ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion && w.truth(d, ref) == waits &&
				d.kind != unwatched && (!d.Deleting && w.undecidable(d) || w.stuck(d, seen)) {
				return true
			}
		}
	}
	return false
}

// check compares an idle graph with the API server, and checks its invariants.
func (g *Graph) check(w *apiServer) error {
	expected := map[types.UID]bool{}
	for uid, o := range w.objects {
		if o.kind != unwatched {
			expected[uid] = true
			for _, ref := range o.Owners {
				expected[ref.UID] = true
			}
		}
	}
	if len(g.nodes) != len(expected) {
		return fmt.Errorf("the graph has %d nodes, and should have %d", len(g.nodes), len(expected))
	}
	for uid, n := range g.nodes {
		blockers := 0
		if n.dependents != nil {
			for i, d := range n.dependents.list {
				r := d.node.owners[d.index]
				if g.nodes[d.node.uid] != d.node || r.owner != n || int(r.slot) != i {
					return fmt.Errorf("%s: dependent %d is not right", uid, i)
				}
				if r.blocks(d.node) {
					blockers++
				}
			}
			if n.dependents.blockers != blockers || len(n.dependents.list) == 0 {
				return fmt.Errorf("%s: %d dependents, of which %d block, not %d", uid, len(n.dependents.list), blockers, n.dependents.blockers)
			}
		}
		if o := w.objects[uid]; n.observed != (o != nil && o.kind != unwatched) || n.observed && n.version != o.Version {
			return fmt.Errorf("%s: observed %v at %d, and it is %v", uid, n.observed, n.version, o)
		}
	}
	return nil
}
