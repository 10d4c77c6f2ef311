package namespace

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// conditions returns the namespace's conditions, with Kubernetes' messages.
func (r remaining) conditions() []corev1.NamespaceCondition {
	return []corev1.NamespaceCondition{
		condition(corev1.NamespaceDeletionDiscoveryFailure, r.discoveryMessage(),
			"DiscoveryFailed", "ResourcesDiscovered", "All resources successfully discovered"),
		condition(corev1.NamespaceDeletionGVParsingFailure, "",
			"GroupVersionParsingFailed", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
		condition(corev1.NamespaceDeletionContentFailure, r.failureMessage(),
			"ContentDeletionFailed", "ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
		condition(corev1.NamespaceContentRemaining, r.resourcesMessage(),
			"SomeResourcesRemain", "ContentRemoved", "All content successfully removed"),
		condition(corev1.NamespaceFinalizersRemaining, r.finalizersMessage(),
			"SomeFinalizersRemain", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
	}
}

// condition is true if problem is not empty.
func condition(name corev1.NamespaceConditionType, problem, reason, okReason, ok string) corev1.NamespaceCondition {
	if problem == "" {
		return corev1.NamespaceCondition{Type: name, Status: corev1.ConditionFalse, Reason: okReason, Message: ok}
	}
	return corev1.NamespaceCondition{Type: name, Status: corev1.ConditionTrue, Reason: reason, Message: problem}
}

func (r remaining) discoveryMessage() string {
	if len(r.undiscovered) == 0 {
		return ""
	}
	var groups []string
	for gv, failure := range r.undiscovered {
		groups = append(groups, fmt.Sprintf("%s: %v", gv, failure.Err))
	}
	slices.Sort(groups)
	return fmt.Sprintf("Discovery failed for some groups, %d failing: %s", len(groups), strings.Join(groups, ", "))
}

func (r remaining) failureMessage() string {
	if len(r.failed) == 0 {
		return ""
	}
	var errs []string
	for _, err := range r.failed {
		errs = append(errs, err.Error())
	}
	slices.Sort(errs)
	return fmt.Sprintf("Failed to delete all resource types, %d remaining: %s", len(errs), strings.Join(errs, ", "))
}

func (r remaining) resourcesMessage() string {
	if len(r.resources) == 0 {
		return ""
	}
	var counts []string
	for gvr, n := range r.resources {
		counts = append(counts, fmt.Sprintf("%s.%s has %d resource instances", gvr.Resource, gvr.Group, n))
	}
	slices.Sort(counts)
	return "Some resources are remaining: " + strings.Join(counts, ", ")
}

func (r remaining) finalizersMessage() string {
	if len(r.finalizers) == 0 {
		return ""
	}
	var counts []string
	for _, name := range slices.Sorted(maps.Keys(r.finalizers)) {
		counts = append(counts, fmt.Sprintf("%s in %d resource instances", name, r.finalizers[name]))
	}
	return "Some content in the namespace has finalizers remaining: " + strings.Join(counts, ", ")
}

// String returns the problems in one line.
func (r remaining) String() string {
	var problems []string
	for _, c := range r.conditions() {
		if c.Status == corev1.ConditionTrue {
			problems = append(problems, c.Message)
		}
	}
	return strings.Join(problems, "; ")
}

// setConditions merges conditions into a status and reports whether that changes
// it.
func setConditions(status *corev1.NamespaceStatus, conditions []corev1.NamespaceCondition, now time.Time) bool {
	changed := false
	for _, c := range conditions {
		c.LastTransitionTime = metav1.NewTime(now)
		i := slices.IndexFunc(status.Conditions, func(old corev1.NamespaceCondition) bool { return old.Type == c.Type })
		if i < 0 {
			status.Conditions = append(status.Conditions, c)
			changed = true
			continue
		}
		old := &status.Conditions[i]
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		changed = changed || old.Status != c.Status || old.Reason != c.Reason || old.Message != c.Message
		*old = c
	}
	return changed
}
