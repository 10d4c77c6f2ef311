package decision

import (
	"math"

	corev1 "k8s.io/api/core/v1"
)

// resourcesFit prefers nodes by their free resources, as the profile's strategy says.
func resourcesFit(s *Snapshot, r *request, nodes []*node, scores []int64) bool {
	strategy := r.profile.Strategy
	if strategy == nil {
		return leastAllocated(s, r, nodes, scores)
	}
	for i, n := range nodes {
		scores[i] = strategy.score(n, r)
	}
	return true
}

// score returns the weighted mean of the scores of the resources that a node has.
func (s *Strategy) score(n *node, r *request) int64 {
	var sum, weights int64
	for _, resource := range s.Resources {
		u := n.usage(resource.Name, r, true)
		if u.capacity == 0 {
			continue
		}
		score := s.scoreOf(u.before+u.added, u.capacity)
		if s.Type == RequestedToCapacityRatio && score <= 0 {
			continue
		}
		sum += score * resource.Weight
		weights += resource.Weight
	}
	switch {
	case weights == 0:
		return 0
	case s.Type == RequestedToCapacityRatio:
		return int64(math.Round(float64(sum) / float64(weights)))
	}
	return sum / weights
}

// scoreOf returns the score of one resource.
func (s *Strategy) scoreOf(used, capacity int64) int64 {
	switch s.Type {
	case MostAllocated:
		return min(used, capacity) * maxScore / capacity
	case RequestedToCapacityRatio:
		return interpolate(s.Shape, min(used, capacity)*100/capacity)
	}
	return freePercent(used, capacity)
}

// interpolate returns the value of a function at x.
func interpolate(shape []ShapePoint, x int64) int64 {
	for i, point := range shape {
		switch {
		case x > point.Utilization:
		case i == 0:
			return point.Score
		default:
			from := shape[i-1]
			return from.Score + (point.Score-from.Score)*(x-from.Utilization)/(point.Utilization-from.Utilization)
		}
	}
	return shape[len(shape)-1].Score
}

// usage is how much of a resource the pods of a node use, how much the pod would add, and
// how much the node has.
type usage struct{ before, added, capacity int64 }

// usage returns the usage of a resource, as scores count it (with a default for
// containers without requests) or as requested. The capacity is 0 for an extended
// resource that the pod does not request. Of one for which the pod gets devices of a class,
// the node has these devices.
func (n *node) usage(name corev1.ResourceName, r *request, scored bool) usage {
	switch {
	case name == corev1.ResourceCPU && scored:
		return usage{n.scoredCPU, r.needs.scoredCPU, n.allocatable.cpu}
	case name == corev1.ResourceCPU:
		return usage{n.requested.cpu, r.needs.cpu, n.allocatable.cpu}
	case name == corev1.ResourceMemory && scored:
		return usage{n.scoredMemory, r.needs.scoredMemory, n.allocatable.memory}
	case name == corev1.ResourceMemory:
		return usage{n.requested.memory, r.needs.memory, n.allocatable.memory}
	case name == corev1.ResourceEphemeralStorage:
		return usage{n.requested.storage, r.needs.storage, n.allocatable.storage}
	case r.needs.others[name] == 0:
		return usage{}
	case n.lacks(name):
		return r.devices.countOf(name).on(n, r.needs.others[name])
	}
	return usage{n.requested.others[name], r.needs.others[name], n.allocatable.others[name]}
}

// balancedResources is balancedAllocation of the resources that a profile names.
func balancedResources(r *request, nodes []*node, scores []int64) bool {
	requests := false
	for i, n := range nodes {
		var before, after []float64
		for _, name := range r.profile.Balanced {
			u := n.usage(name, r, false)
			requests = requests || u.added > 0
			if u.capacity > 0 {
				before = append(before, min(float64(u.before)/float64(u.capacity), 1))
				after = append(after, min(float64(u.before+u.added)/float64(u.capacity), 1))
			}
		}
		scores[i] = maxScore/2 + (maxScore/2+evenness(after)-evenness(before))/2
	}
	return requests
}

// evenness is maxScore less the standard deviation of used parts, in percent.
func evenness(parts []float64) int64 {
	var sum, squares float64
	for _, part := range parts {
		sum += part
	}
	deviation := 0.0
	switch mean := sum / float64(len(parts)); {
	case len(parts) == 2:
		deviation = math.Abs((parts[0] - parts[1]) / 2)
	case len(parts) > 2:
		for _, part := range parts {
			squares += (part - mean) * (part - mean)
		}
		deviation = math.Sqrt(squares / float64(len(parts)))
	}
	return int64((1 - deviation) * maxScore)
}
