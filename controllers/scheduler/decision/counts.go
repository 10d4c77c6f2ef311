package decision

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// Affinity and spreading need the numbers of certain pods in each topology domain (a
// zone, a host): a podCount. It is computed when a decision first needs it, and then
// updated for each pod that is added or removed: a pod changes the few counts that it
// is part of.
//
//	class      the pods of one namespace with the same labels; mostly one workload's
//	count      the pods that some selection matches; filled from the classes
//	boundTerm  the pods that have the same affinity term (terms.go)
//	owners     the pods of a replica set and the like, by the owner's UID

// podCount counts pods by node and by domain.
type podCount struct {
	total   int
	byNode  map[*node]int
	domains []domains // those that decisions have needed
}

// domains are the numbers of pods by the value of a node label, the topology
// key. It has no zeros.
type domains struct {
	key    string
	values map[string]int
	total  int // of the values
}

// add counts pods on a node.
func (t *podCount) add(n *node, pods int) {
	if t.byNode == nil {
		t.byNode = map[*node]int{}
	}
	t.total += pods
	increase(t.byNode, n, pods)
	for i := range t.domains {
		t.domains[i].add(n, pods)
	}
}

func (d *domains) add(n *node, pods int) {
	if value, ok := n.label(d.key); ok {
		d.total += pods
		increase(d.values, value, pods)
	}
}

// increase adds to a number of a map without zeros.
func increase[K comparable](m map[K]int, key K, by int) {
	if sum := m[key] + by; sum != 0 {
		m[key] = sum
	} else {
		delete(m, key)
	}
}

// in returns the numbers of pods by the values of a topology key. They must not
// be changed, and are valid until the snapshot changes.
func (t *podCount) in(key string) domains {
	for i := range t.domains {
		if t.domains[i].key == key {
			return t.domains[i]
		}
	}
	d := domains{key: key, values: map[string]int{}}
	for n, pods := range t.byNode {
		d.add(n, pods)
	}
	t.domains = append(t.domains, d)
	return d
}

// owned are the pods of one owner.
type owned struct {
	podCount
	// members are the pods that hold it: those that count, and nominated ones.
	members int
}

// class is the pods of one namespace that have a node and the same labels.
type class struct {
	podCount
	// members are the pods that hold it: those that count, and nominated ones.
	members   int
	namespace string
	labels    labels.Set
	// terminating pods are a class of their own, since they do not count for spreading.
	terminating bool

	// counts are those that the class is part of.
	counts []*count
	// matched are the bound terms that match the class, as of boundTerms.version.
	matched        []*boundTerm
	matchedVersion uint64
}

// classKey identifies a set of labels within a namespace.
func classKey(set map[string]string, terminating bool) string {
	var b strings.Builder
	if terminating {
		b.WriteByte('!')
	}
	for _, key := range slices.Sorted(maps.Keys(set)) {
		b.WriteString(key)
		b.WriteByte('=')
		b.WriteString(set[key])
		b.WriteByte(',')
	}
	return b.String()
}

// selection selects the pods that match all of the terms, whatever their topology
// keys.
type selection struct {
	terms []*term
	// staying leaves out pods that are being deleted.
	staying bool
}

func (sel *selection) matches(s *Snapshot, c *class) bool {
	if sel.staying && c.terminating {
		return false
	}
	for _, t := range sel.terms {
		if !t.matches(s, c.namespace, c.labels) {
			return false
		}
	}
	return true
}

// selectsNamespaces reports whether it depends on the labels of namespaces.
func (sel *selection) selectsNamespaces() bool {
	return slices.ContainsFunc(sel.terms, func(t *term) bool { return t.namespaceSelector != nil })
}

func (sel *selection) key() string {
	var b strings.Builder
	if sel.staying {
		b.WriteString("staying ")
	}
	for _, t := range sel.terms {
		b.WriteString(t.selects)
		b.WriteByte('&')
	}
	return b.String()
}

// count is the podCount of a selection.
type count struct {
	podCount
	selection
	// lastUsed is the number of the last decision that used it.
	lastUsed uint64
	dropped  bool
}

// counts are the counts that recent decisions have used.
type counts struct {
	byKey map[string]*count
	// byNamespace are the counts that only pods of one of these namespaces can be
	// part of, and selecting those that select namespaces by labels.
	byNamespace map[string][]*count
	selecting   []*count
}

// countOf returns the count of a selection.
func (s *Snapshot) countOf(sel selection) *count {
	key := sel.key()
	c := s.counts.byKey[key]
	if c == nil {
		c = &count{selection: sel}
		s.counts.byKey[key] = c
		s.fill(c)
	}
	c.lastUsed = s.decisions
	return c
}

// fill computes a new count from the classes.
func (s *Snapshot) fill(c *count) {
	// A pod must match all terms, so the namespaces of any of them will do.
	namespaces, known := c.terms[0].namespaces, c.terms[0].namespaceSelector == nil
	if !known {
		namespaces = slices.Collect(maps.Keys(s.classes))
		s.counts.selecting = append(s.counts.selecting, c)
	}
	for _, namespace := range namespaces {
		if known {
			s.counts.byNamespace[namespace] = append(s.counts.byNamespace[namespace], c)
		}
		for _, class := range s.classes[namespace] {
			s.include(c, class)
		}
	}
}

// include adds a class to a count if it is selected.
func (s *Snapshot) include(c *count, class *class) {
	if !c.matches(s, class) {
		return
	}
	class.counts = append(class.counts, c)
	for n, pods := range class.byNode {
		c.add(n, pods)
	}
}

// keepCounts is the number of decisions after which an unused count is dropped, as
// its workload is probably deleted.
const keepCounts = 1 << 12

// dropOldCounts drops the counts that were not used recently.
func (s *Snapshot) dropOldCounts() {
	s.dropCounts(func(c *count) bool { return c.lastUsed+keepCounts < s.decisions })
}

// dropCounts drops the counts for which unwanted is true. Its cost grows with the
// number of classes, so it is called rarely.
func (s *Snapshot) dropCounts(unwanted func(*count) bool) {
	dropped := 0
	for key, c := range s.counts.byKey {
		if unwanted(c) {
			c.dropped = true
			dropped++
			delete(s.counts.byKey, key)
		}
	}
	if dropped == 0 {
		return
	}
	prune := func(list []*count) []*count { return slices.DeleteFunc(list, func(c *count) bool { return c.dropped }) }
	s.counts.selecting = prune(s.counts.selecting)
	for namespace, list := range s.counts.byNamespace {
		if list = prune(list); len(list) > 0 {
			s.counts.byNamespace[namespace] = list
		} else {
			delete(s.counts.byNamespace, namespace)
		}
	}
	for _, classes := range s.classes {
		for _, class := range classes {
			class.counts = prune(class.counts)
		}
	}
}

// joinClass adds a pod to its class, which it returns.
func (s *Snapshot) joinClass(namespace string, set map[string]string, terminating bool) *class {
	classes := s.classes[namespace]
	if classes == nil {
		classes = map[string]*class{}
		s.classes[namespace] = classes
	}
	key := classKey(set, terminating)
	c := classes[key]
	if c == nil {
		c = &class{namespace: namespace, labels: set, terminating: terminating}
		classes[key] = c
		for _, counts := range [][]*count{s.counts.byNamespace[namespace], s.counts.selecting} {
			for _, count := range counts {
				s.include(count, c)
			}
		}
	}
	c.members++
	return c
}

// leaveClass removes a pod from its class, and the class with its last pod.
func (s *Snapshot) leaveClass(c *class) {
	if c.members--; c.members > 0 {
		return
	}
	delete(s.classes[c.namespace], classKey(c.labels, c.terminating))
	if len(s.classes[c.namespace]) == 0 {
		delete(s.classes, c.namespace)
	}
}

// countPod adds a pod to all counts that it is part of (times is 1), or removes it
// (times is -1).
func (s *Snapshot) countPod(p *boundPod, times int) {
	p.class.add(p.node, times)
	for _, c := range p.class.counts {
		c.add(p.node, times)
	}
	for _, h := range p.terms {
		h.add(p.node, times)
	}
	if p.owner != nil {
		p.owner.add(p.node, times)
	}
}
