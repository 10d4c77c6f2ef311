package decision

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Snapshot is the state of the nodes and their pods. It is updated one object at a
// time, in any order: a pod may be added before its node. The cost of an update does
// not depend on the number of nodes. The caller must not change objects that it has
// passed.
//
// It is not safe for concurrent use.
type Snapshot struct {
	nodes      nodes
	pods       map[types.UID]*boundPod
	namespaces map[string]map[string]string
	// classes are the bound pods by namespace and classKey, and owners those of each
	// replica set, replication controller and stateful set.
	classes    map[string]map[string]*class
	owners     map[types.UID]*owned
	counts     counts
	boundTerms boundTerms
	storage    storage
	images     images
	devices    devices
	// profiles are the profiles by scheduler name, and first is that of other pods.
	profiles map[string]*Profile
	first    *Profile
	// extenders take part in decisions, in this order.
	extenders []Extender
	// priorities are the numbers of bound pods by priority, nominations the pods that
	// have no node and are nominated to one, and budgets the disruption budgets by
	// namespace and name.
	priorities  map[int32]int
	nominations map[types.UID]*boundPod
	budgets     map[string]map[string]*budget
	// groups are nil if pods are preempted without regard to their groups.
	groups *podGroups
	// services are the selectors of services by namespace and name.
	services map[string]map[string]labels.Set

	// start is where the next search for feasible nodes begins in the list of nodes.
	start int
	// decisions counts the calls of Decide that checked nodes.
	decisions uint64
	scratch   scratch
}

// scratch is memory that decisions reuse.
type scratch struct {
	feasible []*node
	// resolvable are the nodes of the last decision that preemption may free.
	resolvable []*node
	checks     []indexedCheck
	why        []string
	reasons    reasons
	totals     []int64
	scores     []int64
	sums       []float64
}

// boundPod is a pod that is bound to a node or assumed on it, or nominated to it.
type boundPod struct {
	object *corev1.Pod
	node   *node
	// preempted is set from the decision to delete the pod on.
	preempted bool

	index int // in node.pods
	needs requirements
	ports []hostPort

	claims []claimed
	disks  []*corev1.Volume

	class    *class
	terms    []*boundTerm
	ownerUID types.UID // of the owner whose pods are spread, if any
	owner    *owned    // nil for a pod that is being deleted
}

// is reports whether a pod has not changed in any respect that matters here.
func (p *boundPod) is(pod *corev1.Pod) bool {
	if !occupies(pod) || pod.Spec.NodeName != p.node.name || (pod.DeletionTimestamp != nil) != p.class.terminating ||
		!maps.Equal(pod.Labels, p.class.labels) || spreadingOwner(pod) != p.ownerUID {
		return false
	}
	needs := newRequirements(pod)
	return needs.equal(&p.needs)
}

// NewSnapshot returns an empty snapshot with the default profile.
func NewSnapshot() *Snapshot {
	return &Snapshot{
		first: DefaultProfile(corev1.DefaultSchedulerName),

		nodes:      nodes{byName: map[string]*node{}},
		pods:       map[types.UID]*boundPod{},
		namespaces: map[string]map[string]string{},
		classes:    map[string]map[string]*class{},
		owners:     map[types.UID]*owned{},
		counts:     counts{byKey: map[string]*count{}, byNamespace: map[string][]*count{}},
		boundTerms: boundTerms{byKey: map[string]*boundTerm{}, byNamespace: map[string][]*boundTerm{}},
		storage:    newStorage(),
		devices:    newDevices(),
		images:     images{},
		services:   map[string]map[string]labels.Set{},

		priorities:  map[int32]int{},
		nominations: map[types.UID]*boundPod{},
		budgets:     map[string]map[string]*budget{},
	}
}

// SetNode adds a node, or replaces the node of this name.
func (s *Snapshot) SetNode(object *corev1.Node) {
	n := s.node(object.Name)
	s.images.have(n, object.Status.Images)
	if n.object != nil && maps.Equal(n.object.Labels, object.Labels) {
		n.set(object)
		return
	}
	s.move(n, func() { n.set(object) })
}

// move changes the labels of a node, or adds or removes its object.
func (s *Snapshot) move(n *node, change func()) {
	for _, p := range n.pods {
		s.countPod(p, -1)
	}
	if n.object != nil {
		s.nodes.leave(n)
	}
	change()
	if n.object != nil {
		s.nodes.enter(n)
	}
	for _, p := range n.pods {
		s.countPod(p, 1)
	}
}

// RemoveNode removes a node. Its pods are kept until they are removed themselves, as
// a node of this name may be added again.
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

// SetPod adds a pod that has a node, or replaces the pod of this UID. An assumed pod
// is passed with spec.nodeName set. A pod without a node, or one that has terminated,
// is removed. Immutable fields are not compared.
func (s *Snapshot) SetPod(pod *corev1.Pod) {
	before := s.pods[pod.UID]
	if before != nil && before.is(pod) {
		before.object = pod
		return
	}
	s.RemovePod(pod)
	if !occupies(pod) {
		return
	}
	p := s.newBoundPod(pod, pod.Spec.NodeName)
	p.preempted = before != nil && before.preempted
	s.pods[pod.UID] = p
	s.priorities[p.priority()]++
	s.setMember(p, true)
	s.show(p)
}

// newBoundPod returns a pod of a node, which does not count before show.
func (s *Snapshot) newBoundPod(pod *corev1.Pod, nodeName string) *boundPod {
	p := &boundPod{
		object: pod, node: s.node(nodeName), needs: newRequirements(pod), ports: hostPorts(pod),
		claims: claimsOf(pod), disks: disksOf(pod),
	}
	terminating := pod.DeletionTimestamp != nil
	p.class = s.joinClass(pod.Namespace, pod.Labels, terminating)
	// A term that cannot be parsed was rejected when the pod was created.
	if terms, err := newPodTerms(pod); err == nil {
		p.terms = s.addTerms(terms)
	}
	if p.ownerUID = spreadingOwner(pod); p.ownerUID != "" && !terminating {
		if p.owner = s.owners[p.ownerUID]; p.owner == nil {
			p.owner = &owned{}
			s.owners[p.ownerUID] = p.owner
		}
		p.owner.members++
	}
	return p
}

// show adds a pod to its node and to all sums and counts.
func (s *Snapshot) show(p *boundPod) {
	p.node.add(p)
	s.storage.use(p.claims, 1)
	s.countPod(p, 1)
}

// hide reverts show. The pod can be shown again.
func (s *Snapshot) hide(p *boundPod) {
	s.countPod(p, -1)
	s.storage.use(p.claims, -1)
	p.node.remove(p)
}

// RemovePod removes the pod of this UID, if there is one: it was deleted, or assumed
// and not bound.
func (s *Snapshot) RemovePod(pod *corev1.Pod) {
	p := s.pods[pod.UID]
	if p == nil {
		return
	}
	delete(s.pods, pod.UID)
	increase(s.priorities, p.priority(), -1)
	s.setMember(p, false)
	s.hide(p)
	s.forgetPod(p)
}

// forgetPod removes what only a hidden pod needs.
func (s *Snapshot) forgetPod(p *boundPod) {
	s.forget(p.node)
	s.removeTerms(p.terms)
	if p.owner != nil {
		if p.owner.members--; p.owner.members == 0 {
			delete(s.owners, p.ownerUID)
		}
	}
	s.leaveClass(p.class)
}

// Size returns the number of nodes, and of pods that have one or are assumed to.
func (s *Snapshot) Size() (nodes, pods int) { return s.nodes.present.total, len(s.pods) }

// SetNamespace sets the labels of a namespace, which affinity terms can select.
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

// SetService sets the selector of a service. The pods of a service that no replica
// set, replication controller or stateful set owns are spread by it.
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

// relabelled drops what was computed from the labels of a namespace.
func (s *Snapshot) relabelled(namespace string) {
	s.boundTerms.version++
	if len(s.classes[namespace]) > 0 {
		s.dropCounts((*count).selectsNamespaces)
	}
}

// node returns the node of a name, and adds it if there is none.
func (s *Snapshot) node(name string) *node {
	n := s.nodes.byName[name]
	if n == nil {
		n = &node{name: name}
		s.nodes.byName[name] = n
	}
	return n
}

// forget removes a node that has neither an object nor pods.
func (s *Snapshot) forget(n *node) {
	if n.object == nil && len(n.pods) == 0 && len(n.nominated) == 0 {
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
