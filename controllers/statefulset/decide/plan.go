// Package decide owns the decision of the stateful set controller: which pods are
// created, deleted and repaired next, in which order, and what the status says.
//
// A set has one pod for each ordinal. With the policy OrderedReady, a pod is created
// when all before it are available, and deleted when all after it are gone. With
// the policy Parallel, all are created and deleted at once. A rollout deletes pods
// from the highest ordinal down to the partition, and they are created again in the
// new revision. The scripts in testdata show each rule by example.
package decide

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"svc.dev/svc/controllers/pods"
	"svc.dev/svc/internal/releases"
)

// State is what a plan is made from.
type State struct {
	Set *appsv1.StatefulSet
	// Pods are those that the set controls.
	Pods []*corev1.Pod
	// Delays are the times for which pods that have terminated are not deleted yet.
	Delays map[types.UID]time.Duration
	// Claims are those of all ordinals by name, as far as they exist.
	Claims map[string]*corev1.PersistentVolumeClaim
	// Update has the set's template. Current is the revision that the last complete
	// rollout had.
	Current, Update Revision
	Collisions      *int32
	Now             time.Time
	// Release is that of the API server, whose rules the plan follows.
	Release releases.Release
	// Kind is the kind of the set, and PodKind that of its pods.
	Kind, PodKind schema.GroupVersionKind
}

// Revision is a pod template with the name of its controller revision.
type Revision struct {
	Name     string
	Template *corev1.PodTemplateSpec
}

// Verb is what happens to a pod.
type Verb string

const (
	// Create creates a pod, after its claims.
	Create Verb = "create"
	// Delete deletes a pod.
	Delete Verb = "delete"
	// Repair sets the labels of a pod that give it its identity, creates the claims
	// that it lacks, and changes the owners of its claims.
	Repair Verb = "repair"
	// Report only records the event: the pod does not exist.
	Report Verb = "report"
)

// Action is done to one pod.
type Action struct {
	Verb Verb
	Pod  *corev1.Pod // nil for Report
	// Labels are those that Repair sets.
	Labels map[string]string
	// Claims are created first.
	Claims []*corev1.PersistentVolumeClaim
	// Owners are the claims whose owners change first.
	Owners []Owners
	// Event is recorded for the set, if it is not empty.
	Event Event
}

// Event is an event of the set.
type Event struct {
	Type, Reason, Message string
}

// Plan is what a sync does.
type Plan struct {
	// Actions are done in this order. With the policy Parallel, those with the same
	// verb that follow each other may be done at the same time.
	Actions []Action
	// Observed is the status before the actions, and Status the one after them.
	Observed, Status appsv1.StatefulSetStatus
	// After is the time until the next pod becomes available. 0 is none.
	After time.Duration
}

// decision is a plan in the making.
type decision struct {
	State
	Plan
	monotonic bool
	// replicas are the pods of the ordinals from begin on: nil for those that do not
	// exist. condemned are the pods beyond them, the highest ordinal first.
	begin     int
	replicas  []*corev1.Pod
	condemned []*corev1.Pod
}

// Decide returns the plan for a set.
func Decide(s State) Plan {
	d := &decision{State: s, monotonic: s.Set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement}
	d.sort()
	d.observe()
	if s.Set.DeletionTimestamp == nil && d.processReplicas() && d.processCondemned() {
		d.roll()
	}
	d.predict()
	return d.Plan
}

// sort sorts the pods into replicas and condemned.
func (d *decision) sort() {
	begin, end := ordinals(d.Set)
	d.begin, d.replicas = begin, make([]*corev1.Pod, end-begin)
	for _, pod := range d.Pods {
		switch ordinal, ok := Ordinal(d.Set, pod.Name); {
		case !ok: // it has no place in the set
		case ordinal >= begin && ordinal < end:
			d.replicas[ordinal-begin] = pod
		default:
			d.condemned = append(d.condemned, pod)
		}
	}
	slices.SortFunc(d.condemned, func(a, b *corev1.Pod) int { return d.ordinal(b) - d.ordinal(a) })
}

func (d *decision) ordinal(pod *corev1.Pod) int {
	ordinal, _ := Ordinal(d.Set, pod.Name)
	return ordinal
}

// processReplicas creates and repairs the pods of the set's ordinals. It reports
// whether all are as they should be, so that the sync may go on.
func (d *decision) processReplicas() bool {
	for i, pod := range d.replicas {
		if d.processReplica(i+d.begin, pod) && d.monotonic {
			return false
		}
	}
	return true
}

// processReplica reports whether the pod of an ordinal blocks those after it.
func (d *decision) processReplica(ordinal int, pod *corev1.Pod) (blocks bool) {
	switch {
	case pod == nil && d.reportsClaims(ordinal):
		return true
	case pod == nil:
		d.Actions = append(d.Actions, Action{Verb: Create, Pod: d.newPod(ordinal, d.revisionOf(ordinal)), Claims: d.missingClaims(ordinal)})
		return true
	case pods.IsTerminal(pod):
		d.recreate(pod)
		return true
	case pod.DeletionTimestamp != nil && d.monotonic:
		return true
	}
	repair := Action{Verb: Repair, Pod: pod, Owners: d.ownersOf(pod, ordinal, false)}
	if pod.Status.Phase == corev1.PodPending && pod.DeletionTimestamp == nil {
		repair.Claims = d.missingClaims(ordinal)
	}
	if pod.Labels[appsv1.StatefulSetPodNameLabel] != pod.Name {
		repair.Labels = identity(pod.Name, ordinal)
	}
	if len(repair.Claims)+len(repair.Owners)+len(repair.Labels) > 0 {
		d.Actions = append(d.Actions, repair)
	}
	return !d.available(pod)
}

// reportsClaims reports whether the pod of an ordinal cannot be created before a claim has
// gone. If that is not part of scaling the set, an event says so.
func (d *decision) reportsClaims(ordinal int) bool {
	claim, waits := d.awaitsClaims(ordinal)
	if claim != "" {
		message := fmt.Sprintf("create Pod %s in StatefulSet %s failed error: pvc %s is being deleted", podName(d.Set, ordinal), d.Set.Name, claim)
		d.Actions = append(d.Actions, Action{Verb: Report, Event: Event{corev1.EventTypeWarning, "FailedCreate", message}})
	}
	return waits
}

// recreate deletes a pod that has terminated. The next sync creates it again.
func (d *decision) recreate(pod *corev1.Pod) {
	if pod.DeletionTimestamp != nil {
		return
	}
	if delay := d.Delays[pod.UID]; delay > 0 {
		d.again(delay)
		return
	}
	e := Event{corev1.EventTypeNormal, "RecreatingTerminatedPod", fmt.Sprintf("StatefulSet %s/%s is recreating terminated Pod %s", d.Set.Namespace, d.Set.Name, pod.Name)}
	if pod.Status.Phase == corev1.PodFailed {
		e = Event{corev1.EventTypeWarning, "RecreatingFailedPod", fmt.Sprintf("StatefulSet %s/%s is recreating failed Pod %s", d.Set.Namespace, d.Set.Name, pod.Name)}
	}
	d.Actions = append(d.Actions, Action{Verb: Delete, Pod: pod, Event: e})
}

// again makes the next sync come after a time at the latest.
func (d *decision) again(in time.Duration) {
	if in > 0 && (d.After == 0 || in < d.After) {
		d.After = in
	}
}

// revisionOf returns the revision in which the pod of an ordinal is created: below
// the partition the current one. Without the parameters of a rolling update, which the
// API server does not default if the type is set, that is below the number of pods in
// the current revision.
func (d *decision) revisionOf(ordinal int) Revision {
	kept := d.partition()
	if s := d.Set.Spec.UpdateStrategy; s.Type == appsv1.RollingUpdateStatefulSetStrategyType && s.RollingUpdate == nil {
		kept = int(d.Set.Status.CurrentReplicas)
	}
	if ordinal < d.begin+kept {
		return d.Current
	}
	return d.Update
}

// partition returns how many of the lowest ordinals a rollout leaves alone.
func (d *decision) partition() int {
	strategy := d.Set.Spec.UpdateStrategy
	if strategy.Type == appsv1.OnDeleteStatefulSetStrategyType || strategy.RollingUpdate == nil || strategy.RollingUpdate.Partition == nil {
		return 0
	}
	return int(*strategy.RollingUpdate.Partition)
}

// processCondemned deletes the pods beyond the replicas. It reports whether there
// are none, or all may go at once, so that the sync may go on.
func (d *decision) processCondemned() bool {
	unhealthy := d.firstUnhealthy()
	for _, pod := range d.condemned {
		if owners := d.ownersOf(pod, d.ordinal(pod), true); len(owners) > 0 {
			d.Actions = append(d.Actions, Action{Verb: Repair, Pod: pod, Owners: owners})
		}
	}
	for _, pod := range d.condemned {
		switch {
		case pod.DeletionTimestamp != nil:
		case d.monotonic && !d.available(pod) && pod != unhealthy:
			// A lower pod is not available, and has to be deleted first or recover.
		default:
			d.Actions = append(d.Actions, Action{Verb: Delete, Pod: pod})
		}
		if d.monotonic {
			return false
		}
	}
	return true
}

// firstUnhealthy returns the unhealthy pod with the lowest ordinal, or nil. It may
// be deleted though it is not available.
func (d *decision) firstUnhealthy() *corev1.Pod {
	for _, pod := range slices.Concat(d.replicas, reversed(d.condemned)) {
		if pod != nil && !d.healthy(pod) {
			return pod
		}
	}
	return nil
}

// roll deletes pods that are not in the update revision: one after another from
// the highest ordinal, each when those above it are healthy; or as many as may be
// unavailable. With that limit, those of a set with the policy Parallel that are not
// available are deleted in any case from release 1.37 on: they count as unavailable already.
func (d *decision) roll() {
	strategy := d.Set.Spec.UpdateStrategy
	if strategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return
	}
	budget, limited := d.budget(), d.mayBeUnavailable() != nil
	replacesBroken := limited && !d.monotonic && d.Release >= 37
	for ordinal := len(d.replicas) - 1; ordinal >= d.partition() && (budget > 0 || replacesBroken); ordinal-- {
		pod := d.replicas[ordinal]
		old := pod != nil && pod.Labels[revisionLabel] != d.Update.Name && pod.DeletionTimestamp == nil
		switch {
		case old && (budget > 0 || !d.available(pod)):
			if !pods.IsTerminal(pod) { // otherwise it is deleted already
				d.Actions = append(d.Actions, Action{Verb: Delete, Pod: pod})
			}
			if !replacesBroken || d.available(pod) {
				budget--
			}
		case !limited && (pod == nil || !d.healthy(pod)):
			return
		}
	}
}

func (d *decision) mayBeUnavailable() *intstr.IntOrString {
	if rolling := d.Set.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
		return rolling.MaxUnavailable
	}
	return nil
}

// budget returns how many pods the sync may delete.
func (d *decision) budget() int {
	limit := d.mayBeUnavailable()
	if limit == nil {
		return 1
	}
	// The API server has validated it. It is at least 1, so that a rollout goes on.
	n, err := intstr.GetScaledValueFromIntOrPercent(limit, len(d.replicas), false)
	if err != nil || n < 1 {
		n = 1
	}
	for _, pod := range d.replicas {
		if pod == nil || !d.healthy(pod) {
			n--
		}
	}
	return n
}

// healthy reports whether a pod is available, and not being deleted.
func (d *decision) healthy(pod *corev1.Pod) bool {
	return d.available(pod) && pod.DeletionTimestamp == nil
}

// available reports whether a pod is running, and ready for minReadySeconds.
func (d *decision) available(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodRunning {
		return false
	}
	ok, _ := pods.IsAvailable(pod, d.Set.Spec.MinReadySeconds, d.Now)
	return ok
}

func reversed(all []*corev1.Pod) []*corev1.Pod {
	all = slices.Clone(all)
	slices.Reverse(all)
	return all
}
