package graph

import (
	"slices"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// node is an object that was observed, or one that others name as their owner.
// There are as many of them as the cluster has objects: fields are few, and
// what most nodes lack is behind a pointer.
type node struct {
	uid   types.UID
	name  string
	place unique.Handle[place]
	// version is 0 for an object that was not observed.
	version uint64
	// owners are in the order of the object's owner references.
	owners []reference
	// family is nil for a node without dependents.
	family *family

	// foreground and orphan are the indexes of these finalizers, or none.
	foreground, orphan int16

	// observed nodes were seen by a watch. Of others it is known only that
	// somebody refers to them; their place and name are a guess.
	observed bool
	deleting bool
	// deleted tells that a delete of this version has succeeded. A watch will
	// tell what became of it.
	deleted bool
	// stale tells that the object was found to have changed.
	stale bool
}

// none is the index of a finalizer that an object does not have.
const none = -1

// place is where an object is found by its name.
type place struct {
	kind schema.GroupKind
	// namespace is empty for kinds without namespaces.
	namespace string
}

// reference is an owner reference of a node.
type reference struct {
	owner *node
	// as is how the reference names its owner. It is nil if that is the kind
	// and the name of the owner's node.
	as *coordinates
	// slot is the index of the reference in the owner's list of dependents.
	slot  int32
	block bool
}

type coordinates struct {
	kind schema.GroupKind
	name string
}

// family is what a node is to its dependents.
type family struct {
	dependents []dependent
	// blockers counts the references that block the node's deletion.
	blockers int
	claims   []claim
}

// dependent is one of the references to a node.
type dependent struct {
	node  *node
	index int32 // in node.owners
}

// claim is a way in which references name an owner, with what the API server
// says about it.
type claim struct {
	coordinates
	namespace string
	answer    answer
	epoch     uint64 // of the answer
	// asked tells that a lookup is wanted or under way, and lookup which one
	// of them is the last.
	asked  bool
	lookup uint64
}

type answer int8

const (
	unasked answer = iota
	absent
	present
	waiting // present, and being deleted in the foreground
)

// fate is what dependents need to know of their owner.
type fate struct{ deleting, foreground, orphan bool }

func (n *node) fate() fate { return fate{n.deleting, n.foreground != none, n.orphan != none} }

func (n *node) waiting() bool   { return n.observed && n.deleting && n.foreground != none }
func (n *node) orphaning() bool { return n.observed && n.deleting && n.orphan != none }

// namedBy is how a reference names its owner.
func (r *reference) namedBy() coordinates {
	if r.as != nil {
		return *r.as
	}
	return coordinates{r.owner.place.Value().kind, r.owner.name}
}

// names tells whether the reference of a node names its owner by kind, name and
// namespace.
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

// blocks tells whether the reference of a node blocks its owner's deletion.
func (r *reference) blocks(n *node) bool { return r.block && r.names(n) }

// ownedBy tells whether these are the node's owner references.
func (n *node) ownedBy(refs []metav1.OwnerReference) bool {
	return slices.EqualFunc(n.owners, refs, func(r reference, ref metav1.OwnerReference) bool {
		return r.owner.uid == ref.UID && r.block == ptr.Deref(ref.BlockOwnerDeletion, false) && r.namedBy() == named(ref)
	})
}

func named(ref metav1.OwnerReference) coordinates {
	return coordinates{schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind(), ref.Name}
}

// forget drops what the API server has said about the node, and what it may
// still answer to earlier questions.
func (n *node) forget() {
	if n.family != nil {
		n.family.claims = nil
	}
}

// known is what the API server has said in this epoch about a claim of an
// object in a namespace.
func (n *node) known(by coordinates, namespace string, epoch uint64) answer {
	for i := range n.family.claims {
		c := &n.family.claims[i]
		if c.epoch == epoch && c.answer != unasked && c.coordinates == by && (c.namespace == "" || c.namespace == namespace) {
			return c.answer
		}
	}
	return unasked
}

// claim finds a claim on the node, or makes it.
func (n *node) claim(by coordinates, namespace string) *claim {
	f := n.family
	for i := range f.claims {
		if c := &f.claims[i]; c.coordinates == by && c.namespace == namespace {
			return c
		}
	}
	f.claims = append(f.claims, claim{coordinates: by, namespace: namespace})
	return &f.claims[len(f.claims)-1]
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
		g.settle(before[i].owner)
	}
}

func (g *Graph) link(n *node, index int, ref *metav1.OwnerReference) {
	by := named(*ref)
	owner, ok := g.nodes[ref.UID]
	if !ok {
		owner = &node{uid: ref.UID, name: ref.Name, place: intern(place{kind: by.kind}), foreground: none, orphan: none}
		g.nodes[ref.UID] = owner
	}
	if owner.family == nil {
		owner.family = &family{}
	}
	f := owner.family
	r := &n.owners[index]
	*r = reference{owner: owner, block: ptr.Deref(ref.BlockOwnerDeletion, false), slot: int32(len(f.dependents))}
	if by.kind != owner.place.Value().kind || by.name != owner.name {
		r.as = &by
	}
	f.dependents = append(f.dependents, dependent{n, int32(index)})
	if r.blocks(n) {
		f.blockers++
	}
	g.noticeNamespace(n, r)
}

// unlink removes the owner references of a node. The owners may be without
// dependents then: they must be settled.
func (g *Graph) unlink(n *node) {
	for i := range n.owners {
		r := &n.owners[i]
		f := r.owner.family
		if r.blocks(n) {
			f.blockers--
		}
		last := len(f.dependents) - 1
		moved := f.dependents[last]
		f.dependents[r.slot] = moved
		moved.node.owners[moved.index].slot = r.slot
		f.dependents[last] = dependent{}
		f.dependents = f.dependents[:last]
		if last == 0 {
			r.owner.family = nil
		}
	}
	n.owners = nil
}

// identify makes a node an observed one, with the place and name that it really
// has.
func (g *Graph) identify(n *node, at place, name string) {
	f := n.family
	var by []coordinates
	if f != nil {
		for _, d := range f.dependents {
			by = append(by, d.node.owners[d.index].namedBy())
		}
		f.blockers = 0
	}
	n.place, n.name, n.observed = intern(at), name, true
	for i := range by {
		d := f.dependents[i]
		r := &d.node.owners[d.index]
		r.as = nil
		if by[i].kind != at.kind || by[i].name != name {
			r.as = &by[i]
		}
		if r.blocks(d.node) {
			f.blockers++
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
