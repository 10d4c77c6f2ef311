package decision

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Snapshot is what is known of the nodes and of the pods that have one. It is
// kept by its methods, one object at a time, in any order: pods may come before
// their nodes. Each costs no more than the node it concerns. Objects that it is
// given must not be changed afterwards.
//
// It is not safe for concurrent use.
type Snapshot struct {
	nodes      nodes
	pods       map[types.UID]*boundPod
	namespaces map[string]map[string]string

	// start is where the next search for feasible nodes begins in the list of nodes.
	start int
	// decisions counts the calls of Decide that looked at nodes.
	decisions uint64
	scratch   scratch
}

// scratch is memory that one decision leaves to the next.
type scratch struct {
	feasible []*node
	checks   []indexedCheck
	why      []string
	totals   []int64
	scores   []int64
}

// boundPod is a pod that has a node, or that is about to be bound to it.
type boundPod struct {
	node  *node
	index int // in node.pods
	needs requirements
	ports []hostPort
}

// NewSnapshot returns an empty snapshot.
func NewSnapshot() *Snapshot {
	return &Snapshot{
		nodes:      nodes{byName: map[string]*node{}},
		pods:       map[types.UID]*boundPod{},
		namespaces: map[string]map[string]string{},
	}
}

// SetNode adds a node, or replaces what was known of the node of this name.
func (s *Snapshot) SetNode(object *corev1.Node) {
	n := s.node(object.Name)
	if n.object != nil {
		s.nodes.leave(n)
	}
	n.set(object)
	s.nodes.enter(n)
}

// RemoveNode removes a node. Its pods are remembered until they are removed
// themselves, for a node of this name may come back.
func (s *Snapshot) RemoveNode(name string) {
	n := s.nodes.get(name)
	if n == nil {
		return
	}
	s.nodes.leave(n)
	n.set(&corev1.Node{})
	n.object = nil
	s.forget(n)
}

// SetPod adds a pod that has a node, or replaces what was known under its UID.
// Pods that are assumed to be on a node, since they are being bound to it, are
// told with spec.nodeName set. A pod without a node, or one that has ended, is
// removed.
func (s *Snapshot) SetPod(pod *corev1.Pod) {
	s.RemovePod(pod)
	if !occupies(pod) {
		return
	}
	p := &boundPod{node: s.node(pod.Spec.NodeName), needs: newRequirements(pod), ports: hostPorts(pod)}
	p.node.add(p)
	s.pods[pod.UID] = p
}

// RemovePod removes the pod of this UID, if it is known: it was deleted, or it
// was assumed and not bound.
func (s *Snapshot) RemovePod(pod *corev1.Pod) {
	p := s.pods[pod.UID]
	if p == nil {
		return
	}
	delete(s.pods, pod.UID)
	p.node.remove(p)
	s.forget(p.node)
}

// SetNamespace adds a namespace or replaces what was known of it: its labels,
// which affinity terms may select.
func (s *Snapshot) SetNamespace(object *corev1.Namespace) {
	s.namespaces[object.Name] = object.Labels
}

// RemoveNamespace removes a namespace.
func (s *Snapshot) RemoveNamespace(name string) {
	delete(s.namespaces, name)
}

// node returns the node of a name, which is made if need be.
func (s *Snapshot) node(name string) *node {
	n := s.nodes.byName[name]
	if n == nil {
		n = &node{name: name}
		s.nodes.byName[name] = n
	}
	return n
}

// forget drops a node that nothing speaks of any more.
func (s *Snapshot) forget(n *node) {
	if n.object == nil && len(n.pods) == 0 {
		delete(s.nodes.byName, n.name)
	}
}
