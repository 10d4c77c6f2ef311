package decision

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Profile is a variant of the policy, for the pods that name its scheduler. The fields
// are what KubeSchedulerProfile and the arguments of kube-scheduler's plugins configure.
// It must not be changed after it was passed to a snapshot.
type Profile struct {
	// SchedulerName is the spec.schedulerName of the pods.
	SchedulerName string
	// Disabled are the names of the filters that are not applied.
	Disabled sets.Set[string]
	// Weights are the weights of the scores by name. A score without one is not computed.
	Weights map[string]int64
	// NoPreemption means that pods preempt no others.
	NoPreemption bool
	// PercentageOfNodes is the part of the nodes that is searched for feasible ones; 0
	// adapts it to the size of the cluster.
	PercentageOfNodes int

	// IgnoredResources and IgnoredGroups are extended resources that nodes need not have:
	// their names, and the parts of names before the slash.
	IgnoredResources, IgnoredGroups sets.Set[string]
	// Strategy is how free resources are scored; nil is the default: least allocated, by
	// CPU and memory.
	Strategy *Strategy
	// Balanced are the resources whose use is balanced; nil is CPU and memory.
	Balanced []corev1.ResourceName

	// RequiredWeight is the weight of other pods' required affinity in scores, and
	// IgnorePreferred leaves out all affinity of theirs for a pod without a preferred one.
	RequiredWeight  int64
	IgnorePreferred bool

	// DefaultConstraints, if ListDefaulting is set, take the place of the built-in
	// constraints of pods that have none.
	ListDefaulting     bool
	DefaultConstraints []corev1.TopologySpreadConstraint

	// AddedAffinity is the node affinity that all pods have besides their own.
	AddedAffinity *corev1.NodeAffinity

	// MinCandidatePercentage and MinCandidates are how many of the nodes that preemption
	// may free are tried at least.
	MinCandidatePercentage, MinCandidates int

	// VolumeShape is the score from 0 to 100 of a node by the part that the pod's claims take
	// of the volumes which they would be bound to there (the feature gate
	// VolumeCapacityPriority). Nil scores no node by its volumes.
	VolumeShape []ShapePoint
	// ScoreCapacity scores a node where all claims are to get new volumes by the part that these
	// take of the capacity for them, by the same shape (the feature gate StorageCapacityScoring).
	ScoreCapacity bool

	// BindTimeout is how long a pod waits for its claims to be bound.
	BindTimeout time.Duration
	// DeviceBindTimeout is how long a pod waits for its devices to be ready (the feature gate
	// DRADeviceBindingConditions). Zero waits for none.
	DeviceBindTimeout time.Duration
	// DeviceSearchTimeout is how long the search for devices of a node may take (the feature gate
	// DRASchedulerFilterTimeout). Nil and zero set no limit.
	DeviceSearchTimeout *time.Duration
	// FractionalCapacity lets the ranges of capacity that requests may have be fractions (the feature
	// gate DRAFractionalCapacityRange).
	FractionalCapacity bool
	// ExtendedResources lets pods get devices for extended resources that device classes offer
	// (the feature gate DRAExtendedResource).
	ExtendedResources bool
}

// DefaultProfile returns the default profile of kube-scheduler.
func DefaultProfile(schedulerName string) *Profile {
	p := &Profile{
		SchedulerName: schedulerName, Weights: map[string]int64{}, RequiredWeight: 1,
		MinCandidatePercentage: 10, MinCandidates: 100, BindTimeout: 10 * time.Minute,
	}
	for _, s := range scores {
		p.Weights[s.name] = s.weight
	}
	return p
}

// FilterNames returns the names of the filters, in their order.
func FilterNames() []string {
	var names []string
	for _, f := range filters {
		names = append(names, f.name)
	}
	return names
}

// ScoreNames returns the names of the scores.
func ScoreNames() []string {
	var names []string
	for _, s := range scores {
		names = append(names, s.name)
	}
	return names
}

// Strategy scores the resources of nodes.
type Strategy struct {
	Type      StrategyType
	Resources []WeightedResource
	// Shape is the score from 0 to 100 by the used part, for RequestedToCapacityRatio.
	// Utilizations ascend.
	Shape []ShapePoint
}

// StrategyType is the name of a strategy.
type StrategyType string

// The strategies prefer nodes that are empty, full, or as the shape says.
const (
	LeastAllocated           StrategyType = "LeastAllocated"
	MostAllocated            StrategyType = "MostAllocated"
	RequestedToCapacityRatio StrategyType = "RequestedToCapacityRatio"
)

// WeightedResource is a resource with its weight in a score.
type WeightedResource struct {
	Name   corev1.ResourceName
	Weight int64
}

// ShapePoint is a point of a function that is linear between its points.
type ShapePoint struct{ Utilization, Score int64 }

// SetProfiles replaces the profiles. Pods whose scheduler has none are decided on by the
// first.
func (s *Snapshot) SetProfiles(profiles ...*Profile) {
	s.profiles = map[string]*Profile{}
	for _, p := range profiles {
		s.profiles[p.SchedulerName] = p
	}
	s.first = profiles[0]
}

// BindTimeout returns how long a pod waits for its claims to be bound.
func (s *Snapshot) BindTimeout(pod *corev1.Pod) time.Duration { return s.profileOf(pod).BindTimeout }

// DeviceBindTimeout returns how long a pod waits for its devices to be ready.
func (s *Snapshot) DeviceBindTimeout(pod *corev1.Pod) time.Duration {
	return s.profileOf(pod).DeviceBindTimeout
}

// profileOf returns the profile of a pod.
func (s *Snapshot) profileOf(pod *corev1.Pod) *Profile {
	if p := s.profiles[pod.Spec.SchedulerName]; p != nil {
		return p
	}
	return s.first
}
