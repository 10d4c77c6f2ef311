// Package rollout decides what becomes of a deployment's replica sets: which one
// is made, how large each is, which one goes, and what the deployment's status
// tells. It knows no client and no clock.
//
// The new replica set is the one with the deployment's template; all others are
// old. A rolling update grows the new one as far as maxSurge lets it and shrinks
// the old ones as far as maxUnavailable does, step by step as pods become
// available; testdata shows it.
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

// The annotations of a deployment's replica sets. Revision is the deployment's,
// too: that of its new replica set.
const (
	// Revision counts the templates of the deployment: the highest is the new one.
	Revision = "deployment.kubernetes.io/revision"
	// RevisionHistory lists the earlier revisions of a replica set that became
	// the new one again, separated by commas.
	RevisionHistory = "deployment.kubernetes.io/revision-history"
	// DesiredReplicas is the deployment's size when the replica set got its own.
	// A difference tells that the deployment has been scaled since.
	DesiredReplicas = "deployment.kubernetes.io/desired-replicas"
	// MaxReplicas is that size and the surge: what the replica set's own size is a
	// proportion of.
	MaxReplicas = "deployment.kubernetes.io/max-replicas"
)

// State is what is decided on. Nothing in it is changed.
type State struct {
	Deployment *appsv1.Deployment
	// Sets are the replica sets that the deployment controls.
	Sets []*appsv1.ReplicaSet
	// Running counts the pods of each replica set that have not ended, those that
	// are being deleted included. Only the strategy Recreate looks at it.
	Running map[types.UID]int
	Now     time.Time
}

// Plan is what is to be done, in this order: the actions, then the status.
type Plan struct {
	Actions []Action
	// Revision is the deployment's annotation.
	Revision string
	Status   appsv1.DeploymentStatus
	// After is the time until the progress deadline; zero if there is none to
	// wait for.
	After time.Duration
}

// Action is a change of one replica set.
type Action struct {
	Verb Verb
	// Set is the replica set as it is to be. Of one that is created, Set lacks
	// the owner.
	Set *appsv1.ReplicaSet
	// Was is how it is. Set differs in annotations, replicas and minReadySeconds.
	Was *appsv1.ReplicaSet
	// Events are the messages of events of reason ScalingReplicaSet.
	Events []string
}

// Verb is what is done to a replica set.
type Verb string

// The verbs.
const (
	Create Verb = "create"
	Change Verb = "change"
	Delete Verb = "delete"
)

// Decide makes the plan.
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

// rollout is a decision in the making: the state as it will be after the actions
// so far.
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
		// Should there be two with the template, the elder one is the new one.
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

// plan is the decision as it stands.
func (r *rollout) plan() Plan {
	p := Plan{Revision: r.d.Annotations[Revision], Status: r.status, After: r.after}
	slices.SortStableFunc(r.touched, func(a, b *appsv1.ReplicaSet) int { return cmp.Compare(r.turn(a), r.turn(b)) })
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

// turn orders the actions: a replica set is made before others make room for it,
// and others grow after room was made, so that at no time there are more pods
// than there may be.
func (r *rollout) turn(set *appsv1.ReplicaSet) int {
	switch was := r.was[set]; {
	case was == nil:
		return 0
	case size(set) > size(was):
		return 2
	}
	return 1
}

// touch notes that the replica set changes.
func (r *rollout) touch(set *appsv1.ReplicaSet) {
	if !slices.Contains(r.touched, set) {
		r.touched = append(r.touched, set)
	}
}

// resize gives a replica set its size, with the annotations that say from which
// size of the deployment that follows.
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

// all are the replica sets, the new one last.
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

// active are those of the replica sets that are to have pods.
func active(sets []*appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	var found []*appsv1.ReplicaSet
	for _, set := range sets {
		if *set.Spec.Replicas > 0 {
			found = append(found, set)
		}
	}
	return found
}

// sum adds up a figure of replica sets.
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

// staying are the available pods that are left when the replica set has its
// size: its status may be of before it shrank.
func staying(set *appsv1.ReplicaSet) int32 { return min(available(set), size(set)) }
