package decision

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// fits returns the nodes that fit a pod. Each naive rule is computed from all objects,
// without the sums that a snapshot keeps.
func (w *clusterState) fits(pod *corev1.Pod) []string {
	rules := []func(*corev1.Pod, *corev1.Node) bool{
		w.naiveTaints, w.naiveNodeAffinity, w.naivePorts, w.naiveResources, w.naiveSpread,
		w.naiveAffinity, w.naiveAntiAffinity, w.naiveTheirAntiAffinity, w.naiveFeatures,
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		fits := true
		for _, rule := range rules {
			fits = fits && rule(pod, w.nodes[name])
		}
		if fits {
			names = append(names, name)
		}
	}
	return names
}

func (w *clusterState) naiveTaints(pod *corev1.Pod, n *corev1.Node) bool {
	taints := slices.Clone(n.Spec.Taints)
	if n.Spec.Unschedulable {
		taints = append(taints, corev1.Taint{Key: "node.kubernetes.io/unschedulable", Effect: corev1.TaintEffectNoSchedule})
	}
	for i := range taints {
		if taints[i].Effect != corev1.TaintEffectPreferNoSchedule && !slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return t.ToleratesTaint(klog.Background(), &taints[i], false)
		}) {
			return false
		}
	}
	return true
}

func (w *clusterState) naiveFeatures(pod *corev1.Pod, n *corev1.Node) bool {
	return len(pod.Spec.Containers[0].RestartPolicyRules) == 0 || slices.Contains(n.Status.DeclaredFeatures, restartsAll)
}

func (w *clusterState) naiveNodeAffinity(pod *corev1.Pod, n *corev1.Node) bool {
	ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n)
	return ok && err == nil
}

// on returns the pods of a node.
func (w *clusterState) on(name string) []*corev1.Pod {
	return slices.DeleteFunc(slices.Collect(maps.Values(w.pods)), func(p *corev1.Pod) bool { return p.Spec.NodeName != name })
}

func (w *clusterState) naivePorts(pod *corev1.Pod, n *corev1.Node) bool {
	for _, other := range w.on(n.Name) {
		for _, a := range hostPorts(pod) {
			for _, b := range hostPorts(other) {
				if a.port == b.port && a.protocol == b.protocol && (a.ip == b.ip || a.ip == allAddresses || b.ip == allAddresses) {
					return false
				}
			}
		}
	}
	return true
}

func (w *clusterState) naiveResources(pod *corev1.Pod, n *corev1.Node) bool {
	pods := w.on(n.Name)
	if int64(len(pods)) >= n.Status.Allocatable.Pods().Value() {
		return false
	}
	for name, wanted := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		free := n.Status.Allocatable[name].DeepCopy()
		for _, other := range pods {
			free.Sub(resourcehelper.PodRequests(other, resourcehelper.PodResourcesOptions{})[name])
		}
		if !wanted.IsZero() && wanted.Cmp(free) > 0 {
			return false
		}
	}
	return true
}

func (w *clusterState) naiveSpread(pod *corev1.Pod, n *corev1.Node) bool {
	var hard []corev1.TopologySpreadConstraint
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == corev1.DoNotSchedule {
			hard = append(hard, c)
		}
	}
	for _, c := range hard {
		selector := w.spreadSelector(&c, pod)
		domains := map[string]int{}
		for _, other := range w.nodes {
			if !slices.ContainsFunc(hard, func(c corev1.TopologySpreadConstraint) bool { _, ok := other.Labels[c.TopologyKey]; return !ok }) &&
				(c.NodeAffinityPolicy != nil || w.naiveNodeAffinity(pod, other)) && (c.NodeTaintsPolicy == nil || w.uncordonedTaints(pod, other)) {
				domains[other.Labels[c.TopologyKey]] += w.matching(other.Name, pod.Namespace, selector)
			}
		}
		least := 0
		if len(domains) > 0 {
			least = slices.Min(slices.Collect(maps.Values(domains)))
		}
		value, ok := n.Labels[c.TopologyKey]
		count := domains[value]
		if selector.Matches(labels.Set(pod.Labels)) {
			count++
		}
		if !ok || count-least > int(c.MaxSkew) {
			return false
		}
	}
	return true
}

func (w *clusterState) spreadSelector(c *corev1.TopologySpreadConstraint, pod *corev1.Pod) labels.Selector {
	set := labels.Set(maps.Clone(c.LabelSelector.MatchLabels))
	for _, key := range c.MatchLabelKeys {
		if value, ok := pod.Labels[key]; ok {
			set[key] = value
		}
	}
	return set.AsSelector()
}

func (w *clusterState) uncordonedTaints(pod *corev1.Pod, n *corev1.Node) bool {
	n = n.DeepCopy()
	n.Spec.Unschedulable = false
	return w.naiveTaints(pod, n)
}

// matching counts the pods of a node that match and are not being deleted.
func (w *clusterState) matching(node, namespace string, selector labels.Selector) int {
	count := 0
	for _, other := range w.on(node) {
		if other.Namespace == namespace && other.DeletionTimestamp == nil && selector.Matches(labels.Set(other.Labels)) {
			count++
		}
	}
	return count
}

// selects reports whether a term of owner selects the other pod.
func (w *clusterState) selects(t *corev1.PodAffinityTerm, owner, other *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
	if err != nil || !selector.Matches(labels.Set(other.Labels)) {
		return false
	}
	if t.NamespaceSelector == nil && len(t.Namespaces) == 0 {
		return owner.Namespace == other.Namespace
	}
	byLabels, err := metav1.LabelSelectorAsSelector(t.NamespaceSelector)
	if err != nil {
		return false
	}
	var set labels.Set
	if ns := w.namespaces[other.Namespace]; ns != nil {
		set = ns.Labels
	}
	return slices.Contains(t.Namespaces, other.Namespace) || byLabels.Matches(set)
}

// together reports whether a pod is in the same domain as a node.
func (w *clusterState) together(other *corev1.Pod, n *corev1.Node, key string) bool {
	theirs := w.nodes[other.Spec.NodeName]
	if theirs == nil {
		return false
	}
	a, ok := n.Labels[key]
	b, ok2 := theirs.Labels[key]
	return ok && ok2 && a == b
}

func (w *clusterState) naiveAffinity(pod *corev1.Pod, n *corev1.Node) bool {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAffinity == nil {
		return true
	}
	terms := pod.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	selectsAll := func(other *corev1.Pod) bool {
		return !slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return !w.selects(&t, pod, other) })
	}
	noneMatches, met := true, true
	for _, t := range terms {
		if _, ok := n.Labels[t.TopologyKey]; !ok {
			return false
		}
		here := false
		for _, other := range w.pods {
			if theirs := w.nodes[other.Spec.NodeName]; theirs != nil && selectsAll(other) {
				_, inDomain := theirs.Labels[t.TopologyKey]
				noneMatches = noneMatches && !inDomain
				here = here || w.together(other, n, t.TopologyKey)
			}
		}
		met = met && here
	}
	return met || noneMatches && selectsAll(pod)
}

func (w *clusterState) naiveAntiAffinity(pod *corev1.Pod, n *corev1.Node) bool {
	for _, other := range w.pods {
		if w.avoids(pod, other, other, n) {
			return false
		}
	}
	return true
}

func (w *clusterState) naiveTheirAntiAffinity(pod *corev1.Pod, n *corev1.Node) bool {
	for _, other := range w.pods {
		if w.avoids(other, pod, other, n) {
			return false
		}
	}
	return true
}

// avoids reports whether the required anti-affinity of owner selects the other pod,
// and placed, the one of both that has a node, is in the domain of n.
func (w *clusterState) avoids(owner, other, placed *corev1.Pod, n *corev1.Node) bool {
	if owner.Spec.Affinity == nil || owner.Spec.Affinity.PodAntiAffinity == nil {
		return false
	}
	for _, t := range owner.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		if w.selects(&t, owner, other) && w.together(placed, n, t.TopologyKey) {
			return true
		}
	}
	return false
}
