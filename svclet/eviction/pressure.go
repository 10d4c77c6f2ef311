package eviction

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"svc.dev/svc/svclet/eviction/threshold"
)

// Pressure decides, from one observation to the next, which conditions the node has
// and which resource has to be reclaimed. It is a state machine without clock and I/O.
type Pressure struct {
	thresholds []threshold.Threshold
	// transition is how long a condition lasts after its thresholds were last met.
	transition time.Duration
	// met and since are by the index of the threshold: whether its grace period was over
	// at the last step, and since when it is met.
	met   map[int]bool
	since map[int]time.Time
	seen  map[corev1.NodeConditionType]time.Time
}

// NewPressure returns the state of a node without pressure.
func NewPressure(thresholds []threshold.Threshold, transition time.Duration) *Pressure {
	return &Pressure{thresholds: thresholds, transition: transition, since: map[int]time.Time{}, seen: map[corev1.NodeConditionType]time.Time{}}
}

// Starved is a resource that has to be reclaimed, because a threshold is met.
type Starved struct {
	Threshold threshold.Threshold
	// Resource is its name; Quantity is the threshold's.
	Resource            corev1.ResourceName
	Quantity, Available resource.Quantity
}

// Decision is the result of a step.
type Decision struct {
	// Conditions are those that the node has, sorted.
	Conditions []corev1.NodeConditionType
	// Starved is what has to be reclaimed first; nil for nothing.
	Starved *Starved
}

// Step decides by an observation. A threshold whose signal was not observed is not met.
func (p *Pressure) Step(now time.Time, observed Signals) Decision {
	var d Decision
	since, met := map[int]time.Time{}, map[int]bool{}
	for i, t := range p.thresholds {
		o, found := observed[t.Signal]
		quantity := t.Value.Of(o.Capacity)
		least := quantity.DeepCopy()
		if p.met[i] {
			least.Add(t.Reclaim.Of(o.Capacity))
		}
		if !found || o.Available >= least.Value() {
			continue
		}
		since[i] = now
		if first, was := p.since[i]; was {
			since[i] = first
		}
		p.seen[condition(t.Signal)] = now
		if now.Sub(since[i]) < t.Grace {
			continue
		}
		met[i] = true
		if d.Starved == nil {
			d.Starved = &Starved{t, starvedResource(t.Signal), quantity, *resource.NewQuantity(o.Available, format(t.Signal))}
		}
	}
	p.since, p.met = since, met
	for c, at := range p.seen {
		if at.Equal(now) || now.Sub(at) < p.transition {
			d.Conditions = append(d.Conditions, c)
		} else {
			delete(p.seen, c)
		}
	}
	slices.Sort(d.Conditions)
	return d
}

// crosses reports whether a threshold is met that was not at the last step.
func (p *Pressure) crosses(observed Signals) bool {
	for i, t := range p.thresholds {
		o, found := observed[t.Signal]
		least := t.Value.Of(o.Capacity)
		if _, was := p.since[i]; found && !was && o.Available < least.Value() {
			return true
		}
	}
	return false
}

// condition returns the node's condition of a signal.
func condition(s threshold.Signal) corev1.NodeConditionType {
	switch s {
	case threshold.Memory, threshold.AllocatableMemory:
		return corev1.NodeMemoryPressure
	case threshold.PID:
		return corev1.NodePIDPressure
	}
	return corev1.NodeDiskPressure
}

// format returns how quantities of a signal are shown.
func format(s threshold.Signal) resource.Format {
	if r := starvedResource(s); r == resourceInodes || r == resourcePIDs {
		return resource.DecimalSI
	}
	return resource.BinarySI
}

// The resources that are no names in pods: kubelet's.
const (
	resourceInodes = corev1.ResourceName("inodes")
	resourcePIDs   = corev1.ResourceName("pids")
)

// starvedResource returns the resource of a signal, as messages name it.
func starvedResource(s threshold.Signal) corev1.ResourceName {
	switch s {
	case threshold.Memory, threshold.AllocatableMemory:
		return corev1.ResourceMemory
	case threshold.PID:
		return resourcePIDs
	case threshold.NodeFsInodes, threshold.ImageFsInodes, threshold.ContainerFsInodes:
		return resourceInodes
	}
	return corev1.ResourceEphemeralStorage
}
