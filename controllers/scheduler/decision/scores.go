package decision

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// scores rank the nodes that passed the filters: the node with the highest
// weighted sum is chosen. Names and default weights are those of kube-scheduler's plugins.
var scores = []score{
	{"TaintToleration", 3, fewDiscouragingTaints},
	{"NodeAffinity", 2, preferredNodeAffinity},
	{"NodeResourcesFit", 1, resourcesFit},
	{"PodTopologySpread", 2, spreadsWell},
	{"InterPodAffinity", 2, preferredPodAffinity},
	{dynamicResources, 2, preferredDevices},
	{"NodeResourcesBalancedAllocation", 1, balancedAllocation},
	{"ImageLocality", 1, imageLocality},
	{"VolumeBinding", 1, volumesByShape},
}

// score has a name, a weight and a function. apply writes a number from 0 to maxScore
// for each of the nodes into scores, which is all 0 before; false means that it has no
// preference for this pod.
type score struct {
	name   string
	weight int64
	apply  func(s *Snapshot, r *request, nodes []*node, scores []int64) bool
}

// maxScore is the maximum of a single score.
const maxScore = 100

// rank returns the weighted sum of scores for each node.
func (s *Snapshot) rank(r *request, nodes []*node) []int64 {
	totals := zeros(&s.scratch.totals, len(nodes))
	for _, score := range scores {
		weight := r.profile.Weights[score.name]
		if weight == 0 {
			continue
		}
		values := zeros(&s.scratch.scores, len(nodes))
		if !score.apply(s, r, nodes, values) {
			continue
		}
		for i, value := range values {
			totals[i] += weight * value
		}
	}
	addPriorities(r, nodes, totals)
	return totals
}

// zeros returns n zeros in the memory of buffer, which it grows if necessary.
func zeros(buffer *[]int64, n int) []int64 {
	*buffer = slices.Grow((*buffer)[:0], n)[:n]
	clear(*buffer)
	return *buffer
}

// fewDiscouragingTaints prefers nodes with the fewest taints of effect
// PreferNoSchedule that the pod does not tolerate.
func fewDiscouragingTaints(_ *Snapshot, r *request, nodes []*node, scores []int64) bool {
	for i, n := range nodes {
		for j := range n.discouraged {
			if !tolerates(r.pod.Spec.Tolerations, &n.discouraged[j]) {
				scores[i]++
			}
		}
	}
	scaleToHighest(scores)
	for i := range scores {
		scores[i] = maxScore - scores[i]
	}
	return true
}

// preferredNodeAffinity prefers nodes by the sum of the weights of the pod's
// preferred node affinity terms that they match.
func preferredNodeAffinity(_ *Snapshot, r *request, nodes []*node, scores []int64) bool {
	var preferred []corev1.PreferredSchedulingTerm
	if added := r.profile.AddedAffinity; added != nil {
		preferred = append(preferred, added.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	if affinity := r.pod.Spec.Affinity; affinity != nil && affinity.NodeAffinity != nil {
		preferred = append(preferred, affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	if len(preferred) == 0 {
		return false
	}
	// Terms that cannot be parsed were rejected when the pod was created.
	terms, err := nodeaffinity.NewPreferredSchedulingTerms(preferred)
	if err != nil {
		return false
	}
	for i, n := range nodes {
		scores[i] = terms.Score(n.object)
	}
	scaleToHighest(scores)
	return true
}

// leastAllocated prefers nodes with the largest parts of CPU and memory free.
func leastAllocated(_ *Snapshot, r *request, nodes []*node, scores []int64) bool {
	for i, n := range nodes {
		var sum, resources int64
		if n.allocatable.cpu > 0 {
			sum += freePercent(n.scoredCPU+r.needs.scoredCPU, n.allocatable.cpu)
			resources++
		}
		if n.allocatable.memory > 0 {
			sum += freePercent(n.scoredMemory+r.needs.scoredMemory, n.allocatable.memory)
			resources++
		}
		if resources > 0 {
			scores[i] = sum / resources
		}
	}
	return true
}

func freePercent(used, capacity int64) int64 {
	if used > capacity {
		return 0
	}
	return (capacity - used) * maxScore / capacity
}

// balancedAllocation prefers nodes where the pod brings the used parts of CPU
// and memory closer together.
func balancedAllocation(_ *Snapshot, r *request, nodes []*node, scores []int64) bool {
	if r.profile.Balanced != nil {
		return balancedResources(r, nodes, scores)
	}
	// A pod that requests nothing does not change the balance.
	if r.needs.cpu == 0 && r.needs.memory == 0 {
		return false
	}
	for i, n := range nodes {
		after := balance(n.requested.cpu+r.needs.cpu, n.requested.memory+r.needs.memory, &n.allocatable)
		before := balance(n.requested.cpu, n.requested.memory, &n.allocatable)
		scores[i] = maxScore/2 + (maxScore/2+after-before)/2
	}
	return true
}

// balance is maxScore less the standard deviation of the used parts, in percent.
func balance(cpu, memory int64, capacity *resources) int64 {
	if capacity.cpu == 0 || capacity.memory == 0 {
		return maxScore
	}
	usedCPU := min(float64(cpu)/float64(capacity.cpu), 1)
	usedMemory := min(float64(memory)/float64(capacity.memory), 1)
	return int64((1 - math.Abs((usedCPU-usedMemory)/2)) * maxScore)
}

// scaleToHighest scales scores so that the highest is maxScore, unless all are 0.
func scaleToHighest(scores []int64) {
	var highest int64
	for _, score := range scores {
		highest = max(highest, score)
	}
	if highest == 0 {
		return
	}
	for i := range scores {
		scores[i] = maxScore * scores[i] / highest
	}
}

// scaleToRange scales scores so that the lowest is 0 and the highest maxScore,
// or all 0 if they are the same.
func scaleToRange(scores []int64) {
	lowest, highest := slices.Min(scores), slices.Max(scores)
	for i := range scores {
		if highest == lowest {
			scores[i] = 0
		} else {
			scores[i] = int64(maxScore * (float64(scores[i]-lowest) / float64(highest-lowest)))
		}
	}
}
