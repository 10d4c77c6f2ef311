// Package rollout decides which replica sets of a deployment are created, scaled
// and deleted, and computes the deployment's status, without client or clock.
//
// The new replica set is the one with the deployment's template; all others are
// old. A rolling update scales the new one up within maxSurge and the old ones down
// within maxUnavailable, step by step as pods become available. The scripts in
// testdata show it.
package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// The annotations of a deployment's replica sets. The deployment has Revision too:
// that of its new replica set.
const (
	// Revision numbers the templates of the deployment: the new one has the highest.
	Revision = "deployment.kubernetes.io/revision"
	// RevisionHistory lists the earlier revisions of a replica set that became
	// the new one again, separated by commas.
	RevisionHistory = "deployment.kubernetes.io/revision-history"
	// DesiredReplicas is the deployment's size when the replica set was last scaled.
	// If they differ, the deployment has been scaled since.
	DesiredReplicas = "deployment.kubernetes.io/desired-replicas"
	// MaxReplicas is that size plus the surge, of which the replica set's own size
	// is a proportion.
	MaxReplicas = "deployment.kubernetes.io/max-replicas"
)

// State is the input of Decide, which does not change it.
type State struct {
	Deployment *appsv1.Deployment
	// Sets are the replica sets that the deployment controls.
	Sets []*appsv1.ReplicaSet
	// Running is the number of pods of each replica set that have not terminated,
	// including those that are being deleted. Only the strategy Recreate needs it.
	Running map[types.UID]int
	Now     time.Time
}

// Plan is the decision: the actions in their order, and then the status to write.
type Plan struct {
	Actions []Action
	// Revision is the deployment's annotation of that name.
	Revision string
	Status   appsv1.DeploymentStatus
	// After is the time until the progress deadline; zero if none is pending.
	After time.Duration
}

// Action is a change of one replica set.
type Action struct {
	Verb Verb
	// Set is the desired replica set. One that is created has no owner yet.
	Set *appsv1.ReplicaSet
	// Was is the present one. Set differs in annotations, replicas and
	// minReadySeconds only.
	Was *appsv1.ReplicaSet
	// Events are the messages of events of reason ScalingReplicaSet.
	Events []string
}

// Verb is the kind of an action.
type Verb string

// The verbs.
const (
	Create Verb = "create"
	Change Verb = "change"
	Delete Verb = "delete"
)

// Decide returns the plan for a state.
func Decide(s State) Plan {
	r := newRollout(s)
	switch {
	case s.Deployment.DeletionTimestamp != nil:
		r.followNew()
		r.count()
	case s.Deployment.Spec.Paused:
		r.notePause()
		r.followNew()
		r.scale()
		r.cleanUp()
		r.count()
	default:
		r.notePause()
		r.followNew()
		switch {
		case r.scaledSince():
			r.scale()
			r.count()
		case r.rolls():
			r.roll()
		default:
			r.recreate()
		}
	}
	return r.plan()
}

// rollout is the state as it will be after the actions that were decided so far.
type rollout struct {
	d       *appsv1.Deployment // its status and annotations change
	was     map[*appsv1.ReplicaSet]*appsv1.ReplicaSet
	events  map[*appsv1.ReplicaSet][]string
	running map[types.UID]int
	now     time.Time

	fresh   *appsv1.ReplicaSet   // the new one, or nil
	old     []*appsv1.ReplicaSet // by age, the oldest first
	touched []*appsv1.ReplicaSet // those to create or change, in order
	deleted []*appsv1.ReplicaSet
	status  appsv1.DeploymentStatus
	after   time.Duration
}

func newRollout(s State) *rollout {
	d := *s.Deployment
	d.Annotations = maps.Clone(d.Annotations)
	d.Status.Conditions = slices.Clone(d.Status.Conditions)
	r := &rollout{d: &d, was: map[*appsv1.ReplicaSet]*appsv1.ReplicaSet{}, events: map[*appsv1.ReplicaSet][]string{}, running: s.Running, now: s.Now}
	for _, rs := range slices.SortedFunc(slices.Values(s.Sets), byAge) {
		set := *rs
		set.Annotations = maps.Clone(rs.Annotations)
		set.Spec.Replicas = ptr.To(*rs.Spec.Replicas)
		r.was[&set] = rs
		// If two have the template, the older one is the new replica set.
		if r.fresh == nil && SameTemplate(&set.Spec.Template, &d.Spec.Template) {
			r.fresh = &set
		} else {
			r.old = append(r.old, &set)
		}
	}
	return r
}

func byAge(a, b *appsv1.ReplicaSet) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// plan returns the plan of the actions decided so far.
func (r *rollout) plan() Plan {
	p := Plan{Revision: r.d.Annotations[Revision], Status: r.status, After: r.after}
	slices.SortStableFunc(r.touched, func(a, b *appsv1.ReplicaSet) int { return cmp.Compare(r.rank(a), r.rank(b)) })
	for _, set := range r.touched {
		verb := Change
		if r.was[set] == nil {
			verb = Create
		}
		p.Actions = append(p.Actions, Action{Verb: verb, Set: set, Was: r.was[set], Events: r.events[set]})
	}
	for _, set := range r.deleted {
		p.Actions = append(p.Actions, Action{Verb: Delete, Set: set, Was: r.was[set]})
	}
	return p
}

// rank orders the actions, so that there are never more pods than maxSurge allows:
// the new replica set is created first, then others are scaled down, and only then
// others are scaled up.
func (r *rollout) rank(set *appsv1.ReplicaSet) int {
	switch was := r.was[set]; {
	case was == nil:
		return 0
	case size(set) > size(was):
		return 2
	}
	return 1
}

// touch records that the replica set changes.
func (r *rollout) touch(set *appsv1.ReplicaSet) {
	if !slices.Contains(r.touched, set) {
		r.touched = append(r.touched, set)
	}
}

// resize scales a replica set, and annotates it with the deployment's present
// size.
func (r *rollout) resize(set *appsv1.ReplicaSet, replicas int32) {
	if from := *set.Spec.Replicas; from != replicas {
		direction := "up"
		if replicas < from {
			direction = "down"
		}
		*set.Spec.Replicas = replicas
		r.events[set] = append(r.events[set], fmt.Sprintf("Scaled %s replica set %s from %d to %d", direction, set.Name, from, replicas))
		r.touch(set)
	}
	if noteSize(set, r.d) {
		r.touch(set)
	}
}

// all returns the replica sets, the new one last.
func (r *rollout) all() []*appsv1.ReplicaSet {
	if r.fresh == nil {
		return r.old
	}
	return append(r.old[:len(r.old):len(r.old)], r.fresh)
}

func (r *rollout) desired() int32 { return *r.d.Spec.Replicas }

func (r *rollout) rolls() bool {
	return r.d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType
}

// active returns the replica sets whose size is not zero.
func active(sets []*appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	var found []*appsv1.ReplicaSet
	for _, set := range sets {
		if *set.Spec.Replicas > 0 {
			found = append(found, set)
		}
	}
	return found
}

// sum returns the sum of a figure over replica sets.
func sum(sets []*appsv1.ReplicaSet, figure func(*appsv1.ReplicaSet) int32) int32 {
	var total int32
	for _, set := range sets {
		total += figure(set)
	}
	return total
}

func size(set *appsv1.ReplicaSet) int32      { return *set.Spec.Replicas }
func replicas(set *appsv1.ReplicaSet) int32  { return set.Status.Replicas }
func ready(set *appsv1.ReplicaSet) int32     { return set.Status.ReadyReplicas }
func available(set *appsv1.ReplicaSet) int32 { return set.Status.AvailableReplicas }

// staying returns the available pods that remain once the replica set has its
// desired size: its status may be older than its last scaling.
func staying(set *appsv1.ReplicaSet) int32 { return min(available(set), size(set)) }
