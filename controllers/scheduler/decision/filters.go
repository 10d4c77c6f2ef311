package decision

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// filters are the filters that a node must pass. They are applied in this order, and
// the first that rejects a node gives the reasons. Names and order are those of
// kube-scheduler's plugins, and resolvable are those whose status there is
// Unschedulable.
var filters = []filter{
	{"NodeUnschedulable", NodeAdded | NodeTaints, toleratesUnschedulable, 0},
	{"NodeName", NodeAdded, isNamedByPod, 0},
	{"TaintToleration", NodeAdded | NodeTaints, toleratesTaints, 0},
	{"NodeAffinity", NodeAdded | NodeLabels, matchesNodeAffinity, 0},
	{"NodePorts", NodeAdded | PodGone, hasFreePorts, resolvable},
	{"NodeResourcesFit", NodeAdded | NodeAllocatable | PodGone | PodShrunk | OwnClassChanged, hasResources, resolvable},
	{"VolumeRestrictions", NodeAdded | PodGone | ClaimChanged, mayShareVolumes, resolvable | global},
	{"NodeVolumeLimits", NodeAdded | PodGone | ClaimChanged | VolumeChanged | ClassChanged | CSINodeChanged | AttachmentGone, hasRoomForVolumes, resolvable},
	{"VolumeBinding", NodeAdded | NodeLabels | ClaimChanged | VolumeChanged | ClassChanged, reachesVolumes, 0},
	{"VolumeZone", NodeAdded | NodeLabels | ClaimChanged | VolumeChanged | ClassChanged, inZoneOfVolumes, 0},
	{"PodTopologySpread", NodeAdded | NodeRemoved | NodeLabels | NodeTaints | PodBound | PodGone | PodLabels, spreadsEvenly, resolvable | global},
	{"InterPodAffinity", NodeAdded | NodeLabels | PodBound | PodGone | PodLabels | NamespaceChanged, matchesPodAffinity, resolvable | global},
	{dynamicResources, NodeAdded | NodeLabels | NodeAllocatable | DevicesChanged, allocatesDevices, 0},
	{DeclaredFeatures, NodeAdded | NodeFeatures, declaresFeatures, 0},
}

// dynamicResources is the filter of devices.
const dynamicResources = "DynamicResources"

// filter has a name, the events after which it may accept a node, and a function that
// returns its rule for a pod.
type filter struct {
	name    string
	wokenBy Event
	apply   func(s *Snapshot, r *request) rule
	traits  trait
}

// trait is a set of properties of a filter.
type trait uint8

const (
	// resolvable: a node may be accepted when pods have left it.
	resolvable trait = 1 << iota
	// global: the rule depends on pods of other nodes, too, and is computed again when
	// pods were added or removed.
	global
)

// The reasons of resolvable filters that no removal of pods resolves.
const (
	missingTopologyLabel = "node(s) didn't match pod topology spread constraints (missing required label)"
	missingPodAffinity   = "node(s) didn't match pod affinity rules"
)

// resolves reports whether a node that a filter rejects for reasons may be accepted
// when pods have left it.
func resolves(filter int, why []string) bool {
	return filters[filter].traits&resolvable != 0 && why[0] != missingTopologyLabel && why[0] != missingPodAffinity
}

// rule is a filter applied to one pod. The zero rule accepts all nodes.
type rule struct {
	// podReason is the reason why all nodes are rejected.
	podReason string
	// only, if not nil, are the names of the only nodes that can be accepted.
	only sets.Set[string]
	// check appends the reasons for rejecting a node to why: none if it accepts the node.
	check func(n *node, why []string) []string
}

// filterSet is a set of indexes into filters.
type filterSet uint32

// policy is the rules of all filters for one pod.
type policy struct {
	podReason string
	rejecting filterSet
	only      []*node
	onlyBy    string
	checks    []indexedCheck
}

type indexedCheck struct {
	filter int
	check  func(n *node, why []string) []string
}

// prepare returns the policy of a pod, in the memory of buffer. Most filters have no
// rule for most pods.
func (s *Snapshot) prepare(r *request, buffer []indexedCheck) policy {
	p := policy{checks: buffer[:0]}
	r.classes = s.devices.classesFor(r)
	for i, f := range filters {
		if r.profile.Disabled.Has(f.name) {
			continue
		}
		rule := f.apply(s, r)
		if rule.podReason != "" {
			return policy{podReason: rule.podReason, rejecting: 1 << i}
		}
		if rule.only != nil {
			p.onlyBy = f.name
			p.only = []*node{}
			for _, name := range sets.List(rule.only) {
				if n := s.nodes.get(name); n != nil {
					p.only = append(p.only, n)
				}
			}
			p.rejecting |= 1 << i
		}
		if rule.check != nil {
			p.checks = append(p.checks, indexedCheck{i, rule.check})
		}
	}
	return p
}

// isGlobal reports whether a rule depends on pods of other nodes.
func (p *policy) isGlobal() bool {
	return slices.ContainsFunc(p.checks, func(c indexedCheck) bool { return filters[c.filter].traits&global != 0 })
}

// rejects returns the index of the filter that rejects a node and its reasons, as
// failed does. The pods nominated to the node that do not have a lower priority count
// as its pods, so that the pod does not take the place that they wait for; but the node
// must fit without them, too, as they may get another node.
func (s *Snapshot) rejects(n *node, p *policy, r *request, why []string) (int, []string) {
	var nominated []*boundPod
	for _, other := range n.nominated {
		if other.priority() >= priorityOf(r.pod) && other.object.UID != r.pod.UID {
			nominated = append(nominated, other)
		}
	}
	if len(nominated) == 0 {
		return p.failed(n, why)
	}
	for _, other := range nominated {
		s.show(other)
	}
	with := s.prepare(r, nil)
	filter, reasons := with.failed(n, why)
	for _, other := range nominated {
		s.hide(other)
	}
	if filter >= 0 {
		return filter, reasons
	}
	return p.failed(n, why)
}

// failed returns the index of the filter that rejects a node and its reasons,
// appended to why; a negative index if all accept it.
func (p *policy) failed(n *node, why []string) (int, []string) {
	for i := range p.checks {
		if why = p.checks[i].check(n, why); len(why) > 0 {
			return p.checks[i].filter, why
		}
	}
	return -1, nil
}

// toleratesUnschedulable rejects cordoned nodes, unless the pod tolerates the taint
// node.kubernetes.io/unschedulable.
func toleratesUnschedulable(_ *Snapshot, r *request) rule {
	cordoned := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	if tolerates(r.pod.Spec.Tolerations, &cordoned) {
		return rule{}
	}
	return rule{check: func(n *node, why []string) []string {
		if n.unschedulable {
			why = append(why, "node(s) were unschedulable")
		}
		return why
	}}
}

// isNamedByPod rejects all nodes but the one in the pod's spec.nodeName.
func isNamedByPod(_ *Snapshot, r *request) rule {
	name := r.pod.Spec.NodeName
	if name == "" {
		return rule{}
	}
	return rule{check: func(n *node, why []string) []string {
		if n.name != name {
			why = append(why, "node(s) didn't match the requested node name")
		}
		return why
	}}
}

// toleratesTaints rejects nodes with taints of effect NoSchedule or NoExecute that the
// pod does not tolerate.
func toleratesTaints(_ *Snapshot, r *request) rule {
	return rule{check: func(n *node, why []string) []string {
		if !toleratesAll(r.pod.Spec.Tolerations, n.taints) {
			why = append(why, "node(s) had untolerated taint(s)")
		}
		return why
	}}
}

// matchesNodeAffinity filters by the pod's node selector and required node affinity.
func matchesNodeAffinity(_ *Snapshot, r *request) rule {
	if !r.selectsNodes() && r.addedAffinity == nil {
		return rule{}
	}
	only, conflict := namedNodes(r.pod)
	if conflict {
		return rule{podReason: "pod affinity terms conflict"}
	}
	return rule{only: only, check: func(n *node, why []string) []string {
		if r.addedAffinity != nil {
			if ok, err := r.addedAffinity.Match(n.object); !ok || err != nil {
				return append(why, "node(s) didn't match scheduler-enforced node affinity")
			}
		}
		if !r.matches(n) {
			why = append(why, "node(s) didn't match Pod's node affinity/selector")
		}
		return why
	}}
}

// namedNodes returns the nodes that a pod's required affinity names, like that of
// daemon pods, so that no others are checked: nil if it can match any. conflict is set
// if no node can match.
func namedNodes(pod *corev1.Pod) (names sets.Set[string], conflict bool) {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return nil, false
	}
	required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil || len(required.NodeSelectorTerms) == 0 {
		return nil, false
	}
	all := sets.New[string]()
	for _, term := range required.NodeSelectorTerms {
		var named sets.Set[string]
		for _, field := range term.MatchFields {
			if field.Key != metav1.ObjectNameField || field.Operator != corev1.NodeSelectorOpIn {
				continue
			}
			if values := sets.New(field.Values...); named == nil {
				named = values
			} else {
				named = named.Intersection(values)
			}
		}
		if named == nil {
			return nil, false
		}
		all = all.Union(named)
	}
	return all, len(all) == 0
}

// hasFreePorts rejects nodes where another pod uses a host port of the pod.
func hasFreePorts(_ *Snapshot, r *request) rule {
	if len(r.ports) == 0 {
		return rule{}
	}
	return rule{check: func(n *node, why []string) []string {
		for _, port := range r.ports {
			if n.uses(port) {
				return append(why, "node(s) didn't have free ports for the requested pod ports")
			}
		}
		return why
	}}
}

// hasResources rejects nodes without enough free resources. Those that a device class offers,
// and the node does not, are left to allocatesDevices.
func hasResources(_ *Snapshot, r *request) rule {
	type other struct {
		name    corev1.ResourceName
		amount  int64
		reason  string
		devices bool
	}
	var others []other
	for name, amount := range r.needs.others {
		group, _, extended := strings.Cut(string(name), "/")
		if extended && (r.profile.IgnoredResources.Has(string(name)) || r.profile.IgnoredGroups.Has(group)) {
			continue
		}
		if amount > 0 {
			others = append(others, other{name, amount, "Insufficient " + string(name), r.classes[name] != ""})
		}
	}
	return rule{check: func(n *node, why []string) []string {
		if int64(len(n.pods))+1 > n.allowedPods {
			why = append(why, "Too many pods")
		}
		if exceeds(r.needs.cpu, n.allocatable.cpu-n.requested.cpu) {
			why = append(why, "Insufficient cpu")
		}
		if exceeds(r.needs.memory, n.allocatable.memory-n.requested.memory) {
			why = append(why, "Insufficient memory")
		}
		if exceeds(r.needs.storage, n.allocatable.storage-n.requested.storage) {
			why = append(why, "Insufficient ephemeral-storage")
		}
		for i := range others {
			if o := &others[i]; (!o.devices || !n.lacks(o.name)) && o.amount > n.allocatable.others[o.name]-n.requested.others[o.name] {
				why = append(why, o.reason)
			}
		}
		return why
	}}
}

// exceeds reports whether more is needed than is free. An overcommitted node accepts a
// pod that requests nothing.
func exceeds(need, free int64) bool {
	return need > 0 && need > free
}

// request is the pod to be scheduled, with what several filters need.
type request struct {
	pod     *corev1.Pod
	profile *Profile
	needs   requirements
	ports   []hostPort

	// nodeSelector and nodeAffinity are those that a node must match, if any.
	nodeSelector []label
	nodeAffinity *nodeaffinity.LazyErrorNodeSelector
	// addedAffinity is that of the profile, if any.
	addedAffinity *nodeaffinity.LazyErrorNodeSelector
	// devices is nil if the pod needs no devices of resource claims, and classes are those
	// that offer extended resources of the pod.
	devices *devicesRequest
	classes map[corev1.ResourceName]string

	terms    podTerms
	termsErr error

	// extenders are those that take part.
	extenders []Extender

	claims []claimed
	// waiting are the claims that get their volume with the pod's node.
	waiting []*corev1.PersistentVolumeClaim
	// placed are the results of place.
	placed map[*node]volumePlacement
}

func newRequest(pod *corev1.Pod, profile *Profile) *request {
	r := &request{pod: pod, profile: profile, needs: newRequirements(pod), ports: hostPorts(pod), claims: claimsOf(pod)}
	for key, value := range pod.Spec.NodeSelector {
		r.nodeSelector = append(r.nodeSelector, label{key, value})
	}
	if affinity := pod.Spec.Affinity; affinity != nil && affinity.NodeAffinity != nil && affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		r.nodeAffinity = nodeaffinity.NewLazyErrorNodeSelector(affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	}
	if added := profile.AddedAffinity; added != nil && added.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		r.addedAffinity = nodeaffinity.NewLazyErrorNodeSelector(added.RequiredDuringSchedulingIgnoredDuringExecution)
	}
	r.terms, r.termsErr = newPodTerms(pod)
	return r
}

// aborted returns why nodes could not be decided on, if that is so.
func (r *request) aborted() error {
	if r.devices == nil {
		return nil
	}
	return r.devices.aborted
}

// label is a label that a node must have.
type label struct{ key, value string }

// selectsNodes reports whether some nodes do not match.
func (r *request) selectsNodes() bool { return len(r.nodeSelector) > 0 || r.nodeAffinity != nil }

// matches reports whether a node matches the pod's node selector and affinity.
// An affinity that cannot be parsed matches no node.
func (r *request) matches(n *node) bool {
	for i := range r.nodeSelector {
		if value, ok := n.label(r.nodeSelector[i].key); !ok || value != r.nodeSelector[i].value {
			return false
		}
	}
	if r.nodeAffinity == nil {
		return true
	}
	ok, err := r.nodeAffinity.Match(n.object)
	return ok && err == nil
}
