package decision

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/topology"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"svc.dev/svc/apis/podspec"
)

// node is a node and the sum of its pods.
type node struct {
	name string
	// object is nil for a node that is known from its pods only.
	object *corev1.Node
	// zone is the region and zone under which the node is listed.
	zone string
	// hostLabel and zoneLabel are copies of the labels that are used most.
	hostLabel, zoneLabel optional

	unschedulable bool
	// taints are those that reject pods, and discouraged those of effect PreferNoSchedule.
	taints, discouraged []corev1.Taint

	allocatable resources
	allowedPods int64
	images      []corev1.ContainerImage
	features    nodedeclaredfeatures.FeatureSet

	pods []*boundPod
	// nominated are the pods without a node that are nominated to this one.
	nominated []*boundPod
	requested resources
	// scoredCPU and scoredMemory are the sums of those of the pods' requirements.
	scoredCPU, scoredMemory int64
	ports                   map[hostPort]int
}

// set updates the node with its object.
func (n *node) set(object *corev1.Node) {
	n.object = object
	n.zone = topology.GetZoneKey(object)
	n.hostLabel.value, n.hostLabel.ok = object.Labels[corev1.LabelHostname]
	n.zoneLabel.value, n.zoneLabel.ok = object.Labels[corev1.LabelTopologyZone]
	n.unschedulable = object.Spec.Unschedulable
	n.taints, n.discouraged = nil, nil
	for _, taint := range object.Spec.Taints {
		if taint.Effect == corev1.TaintEffectPreferNoSchedule {
			n.discouraged = append(n.discouraged, taint)
		} else {
			n.taints = append(n.taints, taint)
		}
	}
	n.allocatable = newResources(object.Status.Allocatable)
	n.allowedPods = object.Status.Allocatable.Pods().Value()
	n.features = nodedeclaredfeatures.DefaultFramework.TryMap(object.Status.DeclaredFeatures)
}

// optional is the value of a label that may be missing.
type optional struct {
	value string
	ok    bool
}

// label returns the value of a label. A node without an object has none.
func (n *node) label(key string) (value string, ok bool) {
	switch key {
	case corev1.LabelHostname:
		return n.hostLabel.value, n.hostLabel.ok
	case corev1.LabelTopologyZone:
		return n.zoneLabel.value, n.zoneLabel.ok
	}
	if n.object == nil {
		return "", false
	}
	value, ok = n.object.Labels[key]
	return value, ok
}

// add adds a pod.
func (n *node) add(p *boundPod) {
	p.index = len(n.pods)
	n.pods = append(n.pods, p)
	n.sum(p, 1)
	for _, port := range p.ports {
		if n.ports == nil {
			n.ports = map[hostPort]int{}
		}
		n.ports[port]++
	}
}

// remove removes a pod that was added.
func (n *node) remove(p *boundPod) {
	last := len(n.pods) - 1
	n.pods[p.index] = n.pods[last]
	n.pods[p.index].index = p.index
	n.pods[last] = nil
	n.pods = n.pods[:last]
	n.sum(p, -1)
	for _, port := range p.ports {
		if n.ports[port]--; n.ports[port] == 0 {
			delete(n.ports, port)
		}
	}
}

func (n *node) sum(p *boundPod, sign int64) {
	n.requested.add(&p.needs.resources, sign)
	n.scoredCPU += sign * p.needs.scoredCPU
	n.scoredMemory += sign * p.needs.scoredMemory
}

// uses reports whether a pod of the node has the port, or one that excludes it: a
// port of all addresses excludes that of any address, and the other way round.
func (n *node) uses(port hostPort) bool {
	if len(n.ports) == 0 {
		return false
	}
	if port.ip != allAddresses {
		anywhere := port
		anywhere.ip = allAddresses
		return n.ports[port] > 0 || n.ports[anywhere] > 0
	}
	for used := range n.ports {
		if used.port == port.port && used.protocol == port.protocol {
			return true
		}
	}
	return false
}

// hostPort is a port of a node that a container uses.
type hostPort struct {
	ip       string
	protocol corev1.Protocol
	port     int32
}

// allAddresses is the default address of ports.
const allAddresses = "0.0.0.0"

// hostPorts returns those of containers and sidecars.
func hostPorts(pod *corev1.Pod) []hostPort {
	var ports []hostPort
	for at, c := range podspec.NonEphemeral(&pod.Spec) {
		if at.List == podspec.InitContainers && !podspec.IsSidecar(at.List, c) {
			continue
		}
		for _, p := range c.Ports {
			if p.HostPort > 0 {
				ports = append(ports, hostPort{cmp.Or(p.HostIP, allAddresses), cmp.Or(p.Protocol, corev1.ProtocolTCP), p.HostPort})
			}
		}
	}
	return ports
}

// toleratesAll reports whether all taints are tolerated.
func toleratesAll(tolerations []corev1.Toleration, taints []corev1.Taint) bool {
	for i := range taints {
		if !tolerates(tolerations, &taints[i]) {
			return false
		}
	}
	return true
}

func tolerates(tolerations []corev1.Toleration, taint *corev1.Taint) bool {
	// The API server accepts operators that compare numbers with the gate
	// TaintTolerationComparisonOperators. The logger is for values that are not numbers.
	return schedulingcorev1.TolerationsTolerateTaint(klog.Logger{}, tolerations, taint, true)
}

// nodes are the nodes of a snapshot.
type nodes struct {
	byName map[string]*node
	// zones hold the nodes that have an object by zone, each sorted by name.
	zones []zone
	// order takes a node of each zone in turn, so that a search that ends early
	// has checked all zones. It is nil after nodes were added, removed or moved.
	order []*node
	// present counts each of them as one.
	present podCount
}

type zone struct {
	name  string
	nodes []*node
}

// get returns a node that has an object, or nil.
func (ns *nodes) get(name string) *node {
	if n := ns.byName[name]; n != nil && n.object != nil {
		return n
	}
	return nil
}

// list returns all nodes that have an object, in the order of searches.
func (ns *nodes) list() []*node {
	if ns.order != nil {
		return ns.order
	}
	total := 0
	for _, z := range ns.zones {
		total += len(z.nodes)
	}
	ns.order = make([]*node, 0, total)
	for i := 0; len(ns.order) < total; i++ {
		for _, z := range ns.zones {
			if i < len(z.nodes) {
				ns.order = append(ns.order, z.nodes[i])
			}
		}
	}
	return ns.order
}

// enter adds a node to its zone.
func (ns *nodes) enter(n *node) {
	i, found := slices.BinarySearchFunc(ns.zones, n.zone, func(z zone, name string) int { return cmp.Compare(z.name, name) })
	if !found {
		ns.zones = slices.Insert(ns.zones, i, zone{name: n.zone})
	}
	z := &ns.zones[i]
	j, _ := slices.BinarySearchFunc(z.nodes, n.name, compareName)
	z.nodes = slices.Insert(z.nodes, j, n)
	ns.order = nil
	ns.present.add(n, 1)
}

// leave removes a node from its zone.
func (ns *nodes) leave(n *node) {
	i, _ := slices.BinarySearchFunc(ns.zones, n.zone, func(z zone, name string) int { return cmp.Compare(z.name, name) })
	z := &ns.zones[i]
	j, _ := slices.BinarySearchFunc(z.nodes, n.name, compareName)
	if z.nodes = slices.Delete(z.nodes, j, j+1); len(z.nodes) == 0 {
		ns.zones = slices.Delete(ns.zones, i, i+1)
	}
	ns.order = nil
	ns.present.add(n, -1)
}

func compareName(n *node, name string) int { return cmp.Compare(n.name, name) }
