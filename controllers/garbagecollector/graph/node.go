package graph

import (
	"slices"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// node is an observed object, or an owner that references name. There is one for
// each object of the cluster: it is kept small, and what most nodes lack is behind a
// pointer.
type node struct {
	uid   types.UID
	name  string
	place unique.Handle[place]
	// version is 0 for a node that was not observed.
	version uint64
	// owners are in the order of the object's owner references.
	owners []reference
	// dependents is nil for a node without dependents.
	dependents *dependents

	// foreground and orphan are the indexes of these finalizers, or none.
	foreground, orphan int16

	// observed is set if a watch has delivered the object. Otherwise only references
	// to it are known, which place and name are taken from.
	observed bool
	deleting bool
	// deleted is set if a delete of this version has succeeded. A watch will deliver
	// the result.
	deleted bool
	// stale is set after a conflict: the object must be read again.
	stale bool
}

// none is the index of a missing finalizer.
const none = -1

// place is the kind and namespace of an object.
type place struct {
	kind schema.GroupKind
	// namespace is empty for kinds without namespaces.
	namespace string
}

// reference is an owner reference of a node.
type reference struct {
	owner *node
	// as is the kind and name in the reference; nil if they are those of the owner's
	// node.
	as *coordinates
	// slot is the index of the reference in the owner's list of dependents.
	slot  int32
	block bool
}

type coordinates struct {
	kind schema.GroupKind
	name string
}

// dependents are the references to a node.
type dependents struct {
	list []dependent
	// blockers counts the references that block the node's deletion.
	blockers int
	lookups  []lookup
}

// dependent is one of the references to a node.
type dependent struct {
	node  *node
	index int32 // in node.owners
}

// lookup is an owner as references name it, with the result of looking it up.
type lookup struct {
	coordinates
	namespace string
	result    lookupResult
	epoch     uint64 // of the result
	// pending is set while a lookup is requested or in flight. sequence is the number
	// of the last one.
	pending  bool
	sequence uint64
}

type lookupResult int8

const (
	noResult lookupResult = iota
	absent
	present
	waiting // present, and being deleted in the foreground
)

// deletion is the part of a node's state that its dependents depend on.
type deletion struct{ deleting, foreground, orphan bool }

func (n *node) deletion() deletion {
	return deletion{n.deleting, n.foreground != none, n.orphan != none}
}

func (n *node) waiting() bool   { return n.observed && n.deleting && n.foreground != none }
func (n *node) orphaning() bool { return n.observed && n.deleting && n.orphan != none }

// namedBy returns the kind and name in a reference.
func (r *reference) namedBy() coordinates {
	if r.as != nil {
		return *r.as
	}
	return coordinates{r.owner.place.Value().kind, r.owner.name}
}

// names reports whether the kind, name and namespace of a node's reference are those
// of the owner.
func (r *reference) names(n *node) bool {
	if r.as != nil {
		return false
	}
	if r.owner.place == n.place {
		return true
	}
	namespace := r.owner.place.Value().namespace
	return namespace == "" || namespace == n.place.Value().namespace
}

// blocks reports whether a node's reference blocks its owner's foreground deletion.
func (r *reference) blocks(n *node) bool { return r.block && r.names(n) }

// ownedBy reports whether these are the node's owner references.
func (n *node) ownedBy(refs []metav1.OwnerReference) bool {
	return slices.EqualFunc(n.owners, refs, func(r reference, ref metav1.OwnerReference) bool {
		return r.owner.uid == ref.UID && r.block == ptr.Deref(ref.BlockOwnerDeletion, false) && r.namedBy() == named(ref)
	})
}

func named(ref metav1.OwnerReference) coordinates {
	return coordinates{schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind(), ref.Name}
}

// dropLookups discards the results of lookups of the node, those in flight included.
func (n *node) dropLookups() {
	if n.dependents != nil {
		n.dependents.lookups = nil
	}
}

// known returns the result in this epoch of a lookup of the node, as an object in a
// namespace names it.
func (n *node) known(by coordinates, namespace string, epoch uint64) lookupResult {
	for i := range n.dependents.lookups {
		l := &n.dependents.lookups[i]
		if l.epoch == epoch && l.result != noResult && l.coordinates == by && (l.namespace == "" || l.namespace == namespace) {
			return l.result
		}
	}
	return noResult
}

// lookup returns the lookup of the node under a name, and adds it if there is none.
func (n *node) lookup(by coordinates, namespace string) *lookup {
	d := n.dependents
	for i := range d.lookups {
		if l := &d.lookups[i]; l.coordinates == by && l.namespace == namespace {
			return l
		}
	}
	d.lookups = append(d.lookups, lookup{coordinates: by, namespace: namespace})
	return &d.lookups[len(d.lookups)-1]
}

// relink replaces the owner references of a node.
func (g *Graph) relink(n *node, refs []metav1.OwnerReference) {
	before := n.owners
	g.unlink(n)
	if len(refs) > 0 {
		n.owners = make([]reference, len(refs))
	}
	for i := range refs {
		g.link(n, i, &refs[i])
	}
	for i := range before {
		g.reevaluate(before[i].owner)
	}
}

func (g *Graph) link(n *node, index int, ref *metav1.OwnerReference) {
	by := named(*ref)
	owner, ok := g.nodes[ref.UID]
	if !ok {
		owner = &node{uid: ref.UID, name: ref.Name, place: intern(place{kind: by.kind}), foreground: none, orphan: none}
		g.nodes[ref.UID] = owner
	}
	if owner.dependents == nil {
		owner.dependents = &dependents{}
	}
	deps := owner.dependents
	r := &n.owners[index]
	*r = reference{owner: owner, block: ptr.Deref(ref.BlockOwnerDeletion, false), slot: int32(len(deps.list))}
	if by.kind != owner.place.Value().kind || by.name != owner.name {
		r.as = &by
	}
	deps.list = append(deps.list, dependent{n, int32(index)})
	if r.blocks(n) {
		deps.blockers++
	}
	g.noticeNamespace(n, r)
}

// unlink removes the owner references of a node. The caller must reevaluate the owners,
// which may have no dependents any more.
func (g *Graph) unlink(n *node) {
	for i := range n.owners {
		r := &n.owners[i]
		deps := r.owner.dependents
		if r.blocks(n) {
			deps.blockers--
		}
		last := len(deps.list) - 1
		moved := deps.list[last]
		deps.list[r.slot] = moved
		moved.node.owners[moved.index].slot = r.slot
		deps.list[last] = dependent{}
		deps.list = deps.list[:last]
		if last == 0 {
			r.owner.dependents = nil
		}
	}
	n.owners = nil
}

// identify marks a node as observed, and sets its actual place and name.
func (g *Graph) identify(n *node, at place, name string) {
	deps := n.dependents
	var by []coordinates
	if deps != nil {
		for _, d := range deps.list {
			by = append(by, d.node.owners[d.index].namedBy())
		}
		deps.blockers = 0
	}
	n.place, n.name, n.observed = intern(at), name, true
	for i := range by {
		d := deps.list[i]
		r := &d.node.owners[d.index]
		r.as = nil
		if by[i].kind != at.kind || by[i].name != name {
			r.as = &by[i]
		}
		if r.blocks(d.node) {
			deps.blockers++
		}
		g.noticeNamespace(d.node, r)
	}
}

// noticeNamespace tells the users of a node that a reference names an owner in
// another namespace.
func (g *Graph) noticeNamespace(n *node, r *reference) {
	at := r.owner.place.Value()
	if !r.owner.observed || at.namespace == "" || at.namespace == n.place.Value().namespace {
		return
	}
	by := r.namedBy()
	g.notices = append(g.notices, Notice{
		Object: n.identity(),
		Owner:  Identity{Kind: by.kind, Namespace: n.place.Value().namespace, Name: by.name, UID: r.owner.uid},
	})
}

func (n *node) identity() Identity {
	at := n.place.Value()
	return Identity{Kind: at.kind, Namespace: at.namespace, Name: n.name, UID: n.uid}
}

// indexOf is the index of a finalizer, or none. Those beyond the range of the
// result are not found; nothing has as many.
func indexOf(finalizers []string, name string) int16 {
	i := slices.Index(finalizers, name)
	if i > 1<<15-1 {
		return none
	}
	return int16(i)
}
