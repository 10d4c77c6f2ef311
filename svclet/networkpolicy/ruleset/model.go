package ruleset

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/knftables"

	"svc.dev/svc/svclet/nft"
)

// Model is the policies, namespaces and pods of a cluster, and the tables of a node that
// follow from them. It is not safe for concurrent use.
//
// The pods of this node that policies select are filtered: the maps egress and ingress
// lead from a pod's address to a chain with the rules of all policies that select it, and
// pods that the same policies select share the chain. A rule refers to the peers by sets
// of addresses, which all rules with the same selectors share. So a pod that comes or
// goes changes only the sets that it is in.
type Model struct {
	bridge string
	// policies are those of each namespace, by name.
	policies   map[string]map[string]*policy
	namespaces map[string]labels.Set
	pods       map[types.UID]Pod
	// podsOf are the pods of each namespace.
	podsOf map[string]map[types.UID]bool
	groups map[string]*members
	tables [families]*table
	// stale is true if the chains may not be those that policies and pods require.
	stale bool
}

// NewModel returns a model without policies. bridge is the interface of the node's pods;
// empty if it is not known.
func NewModel(bridge string) *Model {
	m := &Model{
		bridge: bridge, policies: map[string]map[string]*policy{}, namespaces: map[string]labels.Set{},
		pods: map[types.UID]Pod{}, podsOf: map[string]map[types.UID]bool{}, groups: map[string]*members{},
	}
	for f := range families {
		m.tables[f] = newTable(f)
	}
	return m
}

// SetPolicy adds or changes a policy.
func (m *Model) SetPolicy(p *networkingv1.NetworkPolicy) {
	if m.policies[p.Namespace] == nil {
		m.policies[p.Namespace] = map[string]*policy{}
	}
	m.policies[p.Namespace][p.Name] = compile(p)
	m.stale = true
}

// RemovePolicy removes a policy.
func (m *Model) RemovePolicy(namespace, name string) {
	if delete(m.policies[namespace], name); len(m.policies[namespace]) == 0 {
		delete(m.policies, namespace)
	}
	m.stale = true
}

// Policies returns the names of all policies.
func (m *Model) Policies() []types.NamespacedName {
	var all []types.NamespacedName
	for namespace, policies := range m.policies {
		for name := range policies {
			all = append(all, types.NamespacedName{Namespace: namespace, Name: name})
		}
	}
	return all
}

// SetNamespace adds a namespace, or changes its labels.
func (m *Model) SetNamespace(name string, l labels.Set) {
	if l == nil {
		l = labels.Set{} // it is known
	}
	if old, found := m.namespaces[name]; found && labels.Equals(old, l) {
		return
	}
	m.namespaces[name] = l
	m.regroup(name)
}

// RemoveNamespace removes a namespace.
func (m *Model) RemoveNamespace(name string) {
	delete(m.namespaces, name)
	m.regroup(name)
}

// Namespaces returns the names of all namespaces.
func (m *Model) Namespaces() []string { return slices.Collect(maps.Keys(m.namespaces)) }

// regroup updates the groups of a namespace's pods.
func (m *Model) regroup(namespace string) {
	for uid := range m.podsOf[namespace] {
		for _, g := range m.groups {
			m.join(g, uid)
		}
	}
}

// SetPod adds or changes a pod.
func (m *Model) SetPod(uid types.UID, p Pod) {
	old := m.pods[uid]
	m.pods[uid] = p
	if m.podsOf[p.Namespace] == nil {
		m.podsOf[p.Namespace] = map[types.UID]bool{}
	}
	m.podsOf[p.Namespace][uid] = true
	for _, g := range m.groups {
		m.join(g, uid)
	}
	if (p.Local || old.Local) && (p.Local != old.Local || !labels.Equals(p.Labels, old.Labels) || !slices.Equal(p.Addresses, old.Addresses)) {
		m.stale = true
	}
}

// RemovePod removes a pod.
func (m *Model) RemovePod(uid types.UID) {
	p, found := m.pods[uid]
	if !found {
		return
	}
	for _, g := range m.groups {
		m.change(g, uid, nil)
	}
	delete(m.pods, uid)
	if delete(m.podsOf[p.Namespace], uid); len(m.podsOf[p.Namespace]) == 0 {
		delete(m.podsOf, p.Namespace)
	}
	m.stale = m.stale || p.Local
}

// Pods returns the UIDs of all pods.
func (m *Model) Pods() []types.UID { return slices.Collect(maps.Keys(m.pods)) }

// Filtered reports whether the connections of a pod of this node depend on rules of its
// own: a policy selects it or, on a bridge, there is any policy.
func (m *Model) Filtered(p Pod) bool {
	if m.Guarded() {
		return true
	}
	for _, policy := range m.policies[p.Namespace] {
		if policy.selector.Matches(p.Labels) {
			return true
		}
	}
	return false
}

// Guarded reports whether pods of this node may use only their own addresses.
func (m *Model) Guarded() bool { return m.bridge != "" && len(m.policies) > 0 }

// join updates the elements of a pod in a group.
func (m *Model) join(g *members, uid types.UID) {
	p := m.pods[uid]
	m.change(g, uid, g.elements(p, m.namespaces[p.Namespace]))
}

// change replaces the elements of a pod in a group.
func (m *Model) change(g *members, uid types.UID, elements []element) {
	before := g.of[uid]
	if slices.Equal(before, elements) {
		return
	}
	for _, e := range elements {
		if g.count[e]++; g.count[e] == 1 {
			m.tables[e.family].elements.set(item{g.name, e.key}, "")
		}
	}
	for _, e := range before {
		if g.count[e]--; g.count[e] == 0 {
			delete(g.count, e)
			m.tables[e.family].elements.remove(item{g.name, e.key})
		}
	}
	if len(elements) == 0 {
		delete(g.of, uid)
	} else {
		g.of[uid] = elements
	}
}

// Create adds the whole table of a family to a transaction. It replaces what the table
// had.
func (m *Model) Create(family knftables.Family, tx *knftables.Transaction) {
	m.update()
	m.table(family).create(tx)
}

// Change adds to a transaction what has changed in the table of a family since the last
// call, or since Create.
func (m *Model) Change(family knftables.Family, tx *knftables.Transaction) {
	m.update()
	m.table(family).change(tx)
}

// Hooks returns the number of rules of each chain by which the kernel enters the table of a
// family, after its changes have been written.
func (m *Model) Hooks(family knftables.Family) map[string]int {
	return map[string]int{forwardChain: len(m.table(family).chains.now[forwardChain])}
}

// Content returns what the table of a family has after its changes have been written.
func (m *Model) Content(family knftables.Family) nft.Content { return m.table(family).content() }

func (m *Model) table(f knftables.Family) *table {
	if f == knftables.IPv6Family {
		return m.tables[v6]
	}
	return m.tables[v4]
}

// content is what the tables need besides the elements of groups.
type content struct {
	groups map[string]group
	chains [families]map[string][]string
	own    [families]map[item]string
}

// update makes the tables have the chains that policies and pods of this node require,
// and only the groups that these refer to.
func (m *Model) update() {
	if !m.stale {
		return
	}
	m.stale = false
	needed := m.needed()
	for f, t := range m.tables {
		bridge := ""
		if m.Guarded() {
			bridge = m.bridge
		}
		t.chains.set(forwardChain, t.forward(bridge))
		replace(&t.chains, needed.chains[f], func(name string) bool { return name != forwardChain })
		replace(&t.own, needed.own[f], func(item) bool { return true })
	}
	for name, g := range m.groups {
		if _, found := needed.groups[name]; !found {
			m.removeGroup(g)
		}
	}
	for name, g := range needed.groups {
		if m.groups[name] == nil {
			m.addGroup(g)
		}
	}
}

// needed returns what the pods of this node require.
func (m *Model) needed() content {
	c := content{groups: map[string]group{}}
	for f := range families {
		c.chains[f], c.own[f] = map[string][]string{}, map[item]string{}
	}
	for _, p := range m.pods {
		if !p.Local {
			continue
		}
		if m.Guarded() {
			for _, address := range p.Addresses {
				c.own[familyOf(address)][item{nodeSet, address.String()}] = ""
			}
		}
		for d := range directions {
			selecting := m.selecting(p, d)
			if len(selecting) == 0 {
				continue
			}
			chain := m.chain(&c, d, p.Namespace, selecting)
			for _, address := range p.Addresses {
				f, text := familyOf(address), address.String()
				c.own[f][item{d.String(), text}] = "jump " + chain
				c.own[f][item{selfSet, text + " . " + text}] = ""
			}
		}
	}
	return c
}

// selecting returns the sorted names of the policies that filter a pod in a direction.
func (m *Model) selecting(p Pod, d direction) []string {
	var names []string
	for name, policy := range m.policies[p.Namespace] {
		if policy.allowed[d] != nil && policy.selector.Matches(p.Labels) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// chain adds the chains of policies, with their groups, and returns the name.
func (m *Model) chain(c *content, d direction, namespace string, policies []string) string {
	id := namespace + "/" + strings.Join(policies, "/")
	name := unique(d.String(), id, "-"+id)
	if c.chains[v4][name] != nil {
		return name
	}
	for f := range families {
		for _, policy := range policies {
			c.chains[f][name] = append(c.chains[f][name], m.policies[namespace][policy].allowed[d].rules[f]...)
		}
		c.chains[f][name] = append(c.chains[f][name], "counter drop")
	}
	for _, policy := range policies {
		maps.Copy(c.groups, m.policies[namespace][policy].allowed[d].groups)
	}
	return name
}

func (m *Model) addGroup(g group) {
	added := &members{group: g, of: map[types.UID][]element{}, count: map[element]int{}}
	m.groups[g.name] = added
	for f, t := range m.tables {
		t.sets.set(g.name, set{kind: fmt.Sprint(family(f).addressType(), g.suffix), comment: g.comment})
	}
	for uid := range m.pods {
		m.join(added, uid)
	}
}

func (m *Model) removeGroup(g *members) {
	for e := range g.count {
		m.tables[e.family].elements.remove(item{g.name, e.key})
	}
	for _, t := range m.tables {
		t.sets.remove(g.name)
	}
	delete(m.groups, g.name)
}

// replace makes a journal have exactly the given values, of the keys that are in scope.
func replace[K comparable, V any](j *journal[K, V], values map[K]V, inScope func(K) bool) {
	for k := range j.now {
		if _, found := values[k]; !found && inScope(k) {
			j.remove(k)
		}
	}
	for k, v := range values {
		if old, found := j.now[k]; !found || !j.equal(old, v) {
			j.set(k, v)
		}
	}
}
