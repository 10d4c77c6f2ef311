package decision

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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
	// classes are the bound pods by namespace and classKey, and owners those of
	// each replica set and the like.
	classes  map[string]map[string]*class
	owners   map[types.UID]*tally
	counts   counts
	holdings holdings
	storage  storage
	images   images
	// services are the selectors of services by namespace and name.
	services map[string]map[string]labels.Set

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
	reasons  reasons
	totals   []int64
	scores   []int64
	sums     []float64
}

// boundPod is a pod that has a node, or that is about to be bound to it.
type boundPod struct {
	node  *node
	index int // in node.pods
	needs requirements
	ports []hostPort

	claims []claimed
	disks  []*corev1.Volume

	class    *class
	holdings []*holding
	ownerUID types.UID // of the owner whose pods are spread, if any
	owner    *tally    // nil for a pod that is being deleted
}

// is tells whether a pod is still what it was, as far as it can change.
func (p *boundPod) is(pod *corev1.Pod) bool {
	if !occupies(pod) || pod.Spec.NodeName != p.node.name || (pod.DeletionTimestamp != nil) != p.class.terminating ||
		!maps.Equal(pod.Labels, p.class.labels) || spreadingOwner(pod) != p.ownerUID {
		return false
	}
	needs := newRequirements(pod)
	return needs.equal(&p.needs)
}

// NewSnapshot returns an empty snapshot.
func NewSnapshot() *Snapshot {
	return &Snapshot{
		nodes:      nodes{byName: map[string]*node{}},
		pods:       map[types.UID]*boundPod{},
		namespaces: map[string]map[string]string{},
		classes:    map[string]map[string]*class{},
		owners:     map[types.UID]*tally{},
		counts:     counts{byKey: map[string]*count{}, byNamespace: map[string][]*count{}},
		holdings:   holdings{byKey: map[string]*holding{}, byNamespace: map[string][]*holding{}},
		storage:    newStorage(),
		images:     images{},
		services:   map[string]map[string]labels.Set{},
	}
}

// SetNode adds a node, or replaces what was known of the node of this name.
func (s *Snapshot) SetNode(object *corev1.Node) {
	n := s.node(object.Name)
	s.images.have(n, object.Status.Images)
	if n.object != nil && maps.Equal(n.object.Labels, object.Labels) {
		n.set(object)
		return
	}
	s.move(n, func() { n.set(object) })
}

// move changes the labels of a node, or whether there is one.
func (s *Snapshot) move(n *node, change func()) {
	for _, p := range n.pods {
		s.tallyPod(p, -1)
	}
	if n.object != nil {
		s.nodes.leave(n)
	}
	change()
	if n.object != nil {
		s.nodes.enter(n)
	}
	for _, p := range n.pods {
		s.tallyPod(p, 1)
	}
}

// RemoveNode removes a node. Its pods are remembered until they are removed
// themselves, for a node of this name may come back.
func (s *Snapshot) RemoveNode(name string) {
	n := s.nodes.get(name)
	if n == nil {
		return
	}
	s.images.have(n, nil)
	s.move(n, func() {
		n.set(&corev1.Node{})
		n.object = nil
	})
	s.forget(n)
}

// SetPod adds a pod that has a node, or replaces what was known under its UID.
// Pods that are assumed to be on a node, since they are being bound to it, are
// told with spec.nodeName set. A pod without a node, or one that has ended, is
// removed. Fields that no pod may change are not compared.
func (s *Snapshot) SetPod(pod *corev1.Pod) {
	if p := s.pods[pod.UID]; p != nil && p.is(pod) {
		return
	}
	s.RemovePod(pod)
	if !occupies(pod) {
		return
	}
	p := &boundPod{
		node: s.node(pod.Spec.NodeName), needs: newRequirements(pod), ports: hostPorts(pod),
		claims: claimsOf(pod), disks: disksOf(pod),
	}
	terminating := pod.DeletionTimestamp != nil
	p.class = s.classOf(pod.Namespace, pod.Labels, terminating)
	// A term that cannot be parsed was refused when the pod was created.
	if terms, err := newPodTerms(pod); err == nil {
		p.holdings = s.hold(terms)
	}
	if p.ownerUID = spreadingOwner(pod); p.ownerUID != "" && !terminating {
		if p.owner = s.owners[p.ownerUID]; p.owner == nil {
			p.owner = &tally{}
			s.owners[p.ownerUID] = p.owner
		}
	}
	p.node.add(p)
	s.storage.use(p.claims, 1)
	s.tallyPod(p, 1)
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
	s.tallyPod(p, -1)
	s.storage.use(p.claims, -1)
	p.node.remove(p)
	s.forget(p.node)
	s.release(p.holdings)
	if p.owner != nil && p.owner.total == 0 {
		delete(s.owners, p.ownerUID)
	}
	s.forgetClass(p.class)
}

// SetNamespace adds a namespace or replaces what was known of it: its labels,
// which affinity terms may select.
func (s *Snapshot) SetNamespace(object *corev1.Namespace) {
	before := s.namespaces[object.Name]
	s.namespaces[object.Name] = object.Labels
	if !maps.Equal(before, object.Labels) {
		s.relabelled(object.Name)
	}
}

// RemoveNamespace removes a namespace.
func (s *Snapshot) RemoveNamespace(name string) {
	delete(s.namespaces, name)
	s.relabelled(name)
}

// SetService adds a service or replaces what was known of it: its selector.
// Pods of a service that no replica set or the like owns are spread by it.
func (s *Snapshot) SetService(object *corev1.Service) {
	s.RemoveService(object.Namespace, object.Name)
	if len(object.Spec.Selector) == 0 {
		return
	}
	if s.services[object.Namespace] == nil {
		s.services[object.Namespace] = map[string]labels.Set{}
	}
	s.services[object.Namespace][object.Name] = object.Spec.Selector
}

// RemoveService removes a service.
func (s *Snapshot) RemoveService(namespace, name string) {
	delete(s.services[namespace], name)
	if len(s.services[namespace]) == 0 {
		delete(s.services, namespace)
	}
}

// relabelled forgets what follows from the labels of a namespace.
func (s *Snapshot) relabelled(namespace string) {
	s.holdings.version++
	if len(s.classes[namespace]) > 0 {
		s.dropCounts((*count).selectsNamespaces)
	}
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

// spreadingOwner returns the UID of the controller whose pods are spread by
// default: a replica set, replication controller or stateful set.
func spreadingOwner(pod *corev1.Pod) types.UID {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return ""
	}
	switch owner.Kind {
	case "ReplicaSet", "ReplicationController", "StatefulSet":
		return owner.UID
	}
	return ""
}
