package namespace

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/controllers/discovery"
)

// deletionPhases returns the resources to delete, in order: a phase begins when
// the namespace has no objects of the phases before it. Pods are the first, so
// that what protects running pods (network policies, say) exists as long as they
// do: KEP-5080. core is the API group of pods.
func deletionPhases(resources []discovery.Resource, core string) [][]discovery.Resource {
	var pods, others []discovery.Resource
	for _, r := range resources {
		switch {
		case !holdsObjects(r):
		case r.Group == core && r.Resource == "pods":
			pods = append(pods, r)
		default:
			others = append(others, r)
		}
	}
	return [][]discovery.Resource{pods, others}
}

// holdsObjects reports whether namespaces can have objects of the resource that
// can be deleted.
func holdsObjects(r discovery.Resource) bool {
	return r.Namespaced && r.Can("list", "delete")
}

// mayHoldObjects drops the failures of group versions that had no namespaced
// resources when they were last discovered.
func mayHoldObjects(failed failures) failures {
	may := failures{}
	for gv, failure := range failed {
		holds := !failure.Known
		for _, r := range failure.Last {
			holds = holds || holdsObjects(r)
		}
		if holds {
			may[gv] = failure
		}
	}
	return may
}

// decision is what follows an attempt to delete the content of a namespace.
type decision struct {
	finalize     bool
	report       bool
	requeueAfter time.Duration
}

// decide decides what follows an attempt that began at began and left the given
// content, in a namespace that was deleted at deleted, by the clock of an API server, and
// observed to be deleted at since. The clocks need not agree: the grace period counts from since.
func decide(deleted, since time.Time, left remaining, began, now time.Time, grace time.Duration) decision {
	if !left.none() {
		return decision{report: true, requeueAfter: left.requeueAfter(deleted, now)}
	}
	if end := since.Add(grace); began.Before(end) {
		return decision{requeueAfter: max(end.Sub(now), time.Millisecond)}
	}
	return decision{finalize: true}
}

type failures = map[schema.GroupVersion]discovery.Failure

// remaining is the content that a namespace has left, or may have left.
type remaining struct {
	// undiscovered are group versions that may have objects in it.
	undiscovered failures
	// failed are the errors of deleting or counting, one for each resource.
	failed []error
	// resources counts the objects of each resource, and finalizers the objects
	// with each finalizer.
	resources  map[schema.GroupVersionResource]int
	finalizers map[string]int
	// goneBy is the end of the longest grace period.
	goneBy time.Time
}

// add counts an object that remains.
func (r *remaining) add(gvr schema.GroupVersionResource, obj metav1.Object) {
	if r.resources == nil {
		r.resources, r.finalizers = map[schema.GroupVersionResource]int{}, map[string]int{}
	}
	r.resources[gvr]++
	for _, f := range obj.GetFinalizers() {
		r.finalizers[f]++
	}
	// The deletion timestamp is the end of the grace period.
	if end := obj.GetDeletionTimestamp(); end != nil && len(obj.GetFinalizers()) == 0 && end.After(r.goneBy) {
		r.goneBy = end.Time
	}
}

// none reports whether the namespace is known to be empty.
func (r remaining) none() bool {
	return len(r.undiscovered) == 0 && len(r.failed) == 0 && len(r.resources) == 0
}

// blocksNextPhase reports whether objects of the phases so far exist or may exist.
func (r remaining) blocksNextPhase() bool { return len(r.resources) > 0 || len(r.failed) > 0 }

// The bounds of the time until a namespace that is not empty is synced again.
const (
	minRequeue = 100 * time.Millisecond
	maxRequeue = 10 * time.Second
)

// requeueAfter returns the time until the next sync: a fifth of the time since
// the deletion, but no longer than the grace periods of the remaining objects.
func (r remaining) requeueAfter(deleted, now time.Time) time.Duration {
	after := min(max(now.Sub(deleted)/5, minRequeue), maxRequeue)
	if left := r.goneBy.Sub(now); left > 0 {
		after = min(after, left+minRequeue)
	}
	return after
}
